import type { ContentfulStatusCode } from "hono/utils/http-status";
import type { Millis } from "../../core/lock/time.ts";
import type { ErrorInfo } from "../../core/steps/errors.ts";
import type { RunOutcome } from "../../core/steps/workflow.ts";
import type { AppOptions } from "./options.ts";
import { runPath } from "./path.ts";
import { Problem } from "./problem.ts";
import { retryAfter } from "./retry-after.ts";
import type { Answer } from "./route.ts";
import { errorJson, stateJson } from "./run-json.ts";

/** When to look after a run that somebody else carries, or that waits for a lock. */
const LOOK_AGAIN: Millis = 1_000;

/** What a client is told about the run that it has begun. Throws a Problem where it has not come to a good end. */
export function outcomeAnswer(
  outcome: RunOutcome<unknown>,
  isReplayed: boolean,
  options: AppOptions,
): Answer {
  const { runId, status } = outcome;
  const location = { Location: runPath(options.basePath ?? "", runId) };
  const replayed = isReplayed ? { "Idempotent-Replayed": "true" } : {};
  const headers = { ...location, ...replayed };
  if (status === "completed") return { status: 200, headers, body: stateJson(outcome) };
  if (status === "failed") throw failure(outcome, options, headers);
  const more = stateJson(outcome);
  if (status === "busy") {
    const detail = "the first request with this key is still under way";
    throw new Problem(409, "IN_PROGRESS", detail, { retryIn: LOOK_AGAIN, more, headers });
  }
  if (outcome.reason === "lock-busy") {
    const detail = "the run waits for a lock, and goes on when it is free";
    const { busyStatus = 423 } = options;
    throw new Problem(busyStatus, "LOCK_BUSY", detail, { retryIn: LOOK_AGAIN, more, headers });
  }
  return { status: 202, body: more, headers: { ...headers, ...retryAfter(outcome.wakeIn) } };
}

/** The run has failed for good: its key has this answer from now on. */
function failure(
  { runId, status, error, compensated }: Extract<RunOutcome<unknown>, { status: "failed" }>,
  options: AppOptions,
  headers: Readonly<Record<string, string>>,
): Problem {
  const { code = "RUN_FAILED" } = error;
  const chosen = options.statuses ?? {};
  const http = Object.hasOwn(chosen, code) ? chosen[code] : statusOf(code, error);
  const state = { runId, runStatus: status, compensated };
  if (http === undefined || http >= 500) {
    const detail = "a step of the run could not be carried out; the run's timeline says more";
    return new Problem(500, code, detail, { more: state, headers });
  }
  const { message, data } = errorJson(error);
  return new Problem(http, code, message, { more: { ...state, data }, headers });
}

/** What a driver or a client of some service has thrown has a code too, and is no instruction of the workflow's. */
function statusOf(code: string, { terminal }: ErrorInfo): ContentfulStatusCode {
  if (Object.hasOwn(STATUSES, code)) return STATUSES[code] ?? 500;
  return terminal ? 422 : 500;
}

/** Codes of the engine, and the few of users that have a status of their own. */
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
  RUN_POISONED: 500,
  NON_DETERMINISM: 500,
  NO_LOCKS: 500,
  NO_DATABASE: 500,
  LOCK_LOST: 500,
  STORE_UNAVAILABLE: 500,
  STORE_REFUSED: 500,
  STORE_CLOSED: 500,
  UNKNOWN_OUTCOME: 500,
};
