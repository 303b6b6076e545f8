import type { ContentfulStatusCode } from "hono/utils/http-status";
import type { Millis } from "../../core/lock/time.ts";
import type { ErrorInfo } from "../../core/steps/errors.ts";
import type { RunOutcome } from "../../core/steps/workflow.ts";
import { errorJson, stateJson } from "../json/run-json.ts";
import { runPath } from "./inputs.ts";
import type { AppOptions } from "./options.ts";
import { Problem, retryAfter } from "./problem.ts";
import type { RouteResponse } from "./route.ts";

/** Retry-After for a run that another process executes, or that waits for a lock. */
const RETRY_BUSY: Millis = 1_000;

/** Returns the response for a started run. Throws a Problem for a run that failed or is busy. */
export function outcomeResponse(
  outcome: RunOutcome<unknown>,
  isReplayed: boolean,
  options: AppOptions,
): RouteResponse {
  const { runId, status } = outcome;
  const location = { Location: runPath(options.basePath ?? "", runId) };
  const replayed = isReplayed ? { "Idempotent-Replayed": "true" } : {};
  const headers = { ...location, ...replayed };
  if (status === "completed") return { status: 200, headers, body: stateJson(outcome) };
  if (status === "failed") throw failureProblem(outcome, options, headers);
  const more = stateJson(outcome);
  if (status === "busy") {
    const detail = "the first request with this key is still in progress";
    throw new Problem(409, "IN_PROGRESS", detail, { retryIn: RETRY_BUSY, more, headers });
  }
  if (status === "blocked") {
    const detail = "the run cannot go on for now, and is tried again; see the run's error";
    throw new Problem(503, "RUN_BLOCKED", detail, { retryIn: outcome.retryIn, more, headers });
  }
  if (outcome.reason === "lock-busy") {
    const detail = "the run waits for a lock and resumes when the lock is free";
    const { busyStatus = 423 } = options;
    throw new Problem(busyStatus, "LOCK_BUSY", detail, { retryIn: RETRY_BUSY, more, headers });
  }
  return { status: 202, body: more, headers: { ...headers, ...retryAfter(outcome.wakeIn) } };
}

/** The run has failed. Every repetition with its key gets this response. */
function failureProblem(
  { runId, status, error, compensated }: Extract<RunOutcome<unknown>, { status: "failed" }>,
  options: AppOptions,
  headers: Readonly<Record<string, string>>,
): Problem {
  const { code = "RUN_FAILED" } = error;
  const custom = options.statuses ?? {};
  const http = Object.hasOwn(custom, code) ? custom[code] : statusOf(code, error);
  const state = { runId, runStatus: status, compensated };
  if (http === undefined || http >= 500) {
    const detail = "a step of the run failed; see the timeline of the run";
    return new Problem(500, code, detail, { more: state, headers });
  }
  const { message, data } = errorJson(error);
  return new Problem(http, code, message, { more: { ...state, data }, headers });
}

/** Errors of drivers and clients have codes too. Only the code of a TerminalError means a client error. */
function statusOf(code: string, { terminal }: ErrorInfo): ContentfulStatusCode {
  if (Object.hasOwn(STATUSES, code)) return STATUSES[code] ?? 500;
  return terminal ? 422 : 500;
}

/** The codes of the engine, and the common codes of workflows with a status of their own. */
const STATUSES: Readonly<Record<string, ContentfulStatusCode>> = {
  SOLD_OUT: 409,
  RUN_CANCELLED: 409,
  FENCED_OUT: 409,
  LOCK_TIMEOUT: 423,
  RUN_FAILED: 500,
  STEP_FAILED: 500,
  STEP_TIMEOUT: 500,
  STEP_INTERRUPTED: 500,
  RUN_TIMEOUT: 500,
  HISTORY_TOO_LONG: 500,
  NO_LOCKS: 500,
  NO_DATABASE: 500,
  LOCK_LOST: 500,
  STORE_UNAVAILABLE: 500,
  STORE_REFUSED: 500,
  STORE_CLOSED: 500,
  UNKNOWN_OUTCOME: 500,
};
