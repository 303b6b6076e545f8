import * as z from "zod";
import type { RecordPage } from "../../../core/journal/records.ts";
import { race } from "../../../core/lock/abort.ts";
import type { Duration } from "../../../core/lock/duration.ts";
import { quote } from "../../../core/lock/errors.ts";
import { listener } from "../../../core/lock/listener.ts";
import type { Millis } from "../../../core/lock/time.ts";
import { checkSamePayload } from "../../../core/steps/answers.ts";
import type { Runtime } from "../../../core/steps/contract.ts";
import { unknownRun } from "../../../core/steps/errors.ts";
import { runAtEnd } from "../../../core/steps/run-end.ts";
import type { AnyWorkflow, RunOutcome, Workflow } from "../../../core/steps/workflow.ts";
import { redact } from "../../../infra/redact.ts";
import { lockWaitOf } from "../../invocation/invocation.ts";
import { runJson, stateJson, toJson } from "../../json/run-json.ts";
import { shownResult } from "../../json/shown-value.ts";
import { failureOf, logFailedRun } from "../../telemetry/log-line.ts";
import { bounded } from "../bounded.ts";
import { runPath } from "../inputs.ts";
import { type AppOptions, type ErrorSource, newestOf } from "../options.ts";
import { outcomeResponse } from "../outcome.ts";
import { Problem, retryAfter, timeExceeded, toProblem } from "../problem.ts";
import type { RouteRequest, RouteResponse } from "../route.ts";

type AnyRequest = RouteRequest<unknown, unknown, unknown>;

export const KeyedStart = z
  .strictObject({
    singleton: z.literal("true").optional().meta({
      description:
        "get the open run with this Idempotency-Key, or start one: also when an earlier one has ended",
    }),
    debounce: z
      .string()
      .regex(/^\d{1,9}(\.\d{1,9})?(ms|s|m|h|d)$/)
      .optional()
      .meta({
        description:
          "start one run for all starts with this Idempotency-Key that come within this time of one another, such as 5s; a later start is another run",
      }),
  })
  .refine(({ singleton, debounce }) => !(singleton && debounce), "singleton or debounce, not both");

export class RunHandlers {
  readonly #runtime: Runtime;
  readonly #options: AppOptions;
  readonly #workflows: ReadonlyMap<string, AnyWorkflow>;
  readonly #lockWait: Millis;
  readonly #onOutcome: (outcome: RunOutcome<unknown>, at: ErrorSource) => void;

  constructor(runtime: Runtime, options: AppOptions) {
    this.#runtime = runtime;
    this.#options = options;
    this.#lockWait = lockWaitOf(options);
    this.#onOutcome = listener(reporterOf(options) ?? logFailedRun);
    this.#workflows = new Map(newestOf(options.workflows).map((one) => [one.name, one]));
  }

  /** Executes a singleton in this request, unless another process does. A debounced run is left to workers. */
  async startKeyed(
    name: string,
    { debounce }: z.infer<typeof KeyedStart>,
    request: AnyRequest,
  ): Promise<RouteResponse> {
    const { key, body, deadline } = request;
    const workflow = this.#workflow(name);
    if (workflow.namesRuns) throw namesItsRuns(name);
    const start =
      debounce === undefined
        ? { singleton: key }
        : { debounce: { key, for: debounce as Duration } };
    const starting = this.#runtime.start(workflow, body, start).catch(toInvalid);
    const started = await bounded(starting, deadline);
    const { runId } = started;
    request.log({ workflow: name, runId });
    const isLeft = debounce !== undefined || isAsync(request);
    const outcome = isLeft ? started : await this.#resumeLogged(runId, request);
    return outcomeResponse(outcome, false, this.#options);
  }

  #workflow(name: string): Workflow<unknown, unknown> {
    const workflow = this.#workflows.get(name) as Workflow<unknown, unknown> | undefined;
    if (!workflow) throw unknownWorkflow(name);
    return workflow;
  }

  async start(name: string, request: AnyRequest): Promise<RouteResponse> {
    const workflow = this.#workflow(name);
    const id = request.key;
    request.log({ workflow: name, runId: id });
    const { outcome, isTaken } = await this.#executeLogged(id, request, async (onTaken) => {
      if (workflow.namesRuns) await checkKey(workflow, request);
      return isAsync(request)
        ? this.#runtime.start(workflow, request.body, { id })
        : this.#runtime.execute(workflow, request.body, { id, ...this.#limits(request), onTaken });
    });
    // Without time left, the runtime does not read the run.
    if (outcome.status === "busy" && request.deadline.remaining() <= 0) throw timeExceeded();
    const isEnded = outcome.status === "completed" || outcome.status === "failed";
    const isReplayed = isEnded && !isTaken;
    if (isReplayed) request.log({ replayed: true });
    return outcomeResponse(outcome, isReplayed, this.#options);
  }

  async read(runId: string, page: RecordPage, { signal, log }: AnyRequest): Promise<RouteResponse> {
    log({ runId });
    const shown = this.#runtime.show(runId, page).catch(toInvalid);
    const run = await race(shown, signal);
    if (!run) throw unknownRun(runId);
    const left = run.dueAt ? run.dueAt.getTime() - run.now.getTime() : Number.POSITIVE_INFINITY;
    const wait = run.status === "running" ? Math.min(left, 1_000) : left;
    const headers = run.ending ? {} : retryAfter(wait);
    return { status: 200, headers, body: runJson(run) };
  }

  async signal(
    { runId, signal: name }: { readonly runId: string; readonly signal: string },
    request: AnyRequest,
  ): Promise<RouteResponse> {
    request.log({ runId });
    const payload = request.body ?? null;
    const sending = this.#runtime
      .signal(runId, name, payload, { dedupeId: request.key })
      .catch(toInvalid);
    const delivered = await bounded(sending, request.deadline);
    if (delivered === "delivered") return this.#resume(runId, request, false);
    const run = await bounded(this.#runtime.show(runId), request.deadline);
    // The signal may have ended the run while its response was lost: a repetition with the same key must succeed.
    const first = run?.signals.find((one) => one.name === name && one.dedupeId === request.key);
    if (!first && delivered === "ended") throw this.#ended(runId);
    if (first) checkSamePayload(first, payload);
    return this.#resume(runId, request, true);
  }

  /** Executes the run in this request, unless another process answers sooner. */
  async update(
    { runId, update }: { readonly runId: string; readonly update: string },
    request: AnyRequest,
  ): Promise<RouteResponse> {
    request.log({ runId });
    const send = async () => {
      const options = { dedupeId: request.key, wait: 0 };
      const sending = this.#runtime.update(runId, update, request.body ?? null, options);
      return bounded(sending, request.deadline);
    };
    let outcome = await send();
    const isReplayed = outcome.status !== "pending";
    if (!isReplayed) {
      await this.#resume(runId, request, false);
      outcome = await send();
    }
    if (outcome.status === "answered") {
      const headers = replayed(isReplayed, request);
      return { status: 200, headers, body: { output: toJson(outcome.output) } };
    }
    if (outcome.status === "ended") throw this.#ended(runId);
    if (outcome.status === "failed") {
      const { code = "UPDATE_FAILED", message } = outcome.error;
      throw new Problem(422, code, redact(message));
    }
    const headers = {
      Location: runPath(this.#options.basePath ?? "", runId),
      ...retryAfter(1_000),
    };
    return { status: 202, headers, body: { runId } };
  }

  async query(
    { runId, name }: { readonly runId: string; readonly name: string },
    { signal, log }: AnyRequest,
  ): Promise<RouteResponse> {
    log({ runId });
    const value = await race(shownResult(this.#runtime.query(runId, name)), signal);
    return { status: 200, body: { value: toJson(value ?? null) } };
  }

  async reopen(
    runId: string,
    request: AnyRequest,
    reopen: (runId: string) => Promise<unknown>,
  ): Promise<RouteResponse> {
    request.log({ runId });
    await bounded(reopen(runId), request.deadline);
    return this.#resume(runId, request, false);
  }

  async fork(runId: string, from: string, request: AnyRequest): Promise<RouteResponse> {
    const { key, deadline } = request;
    request.log({ runId: key });
    const known = await bounded(this.#runtime.journal.find(key), deadline);
    const fork = await bounded(this.#runtime.fork(runId, { from, as: key }), deadline);
    return this.#resume(fork, request, known !== undefined);
  }

  async cancel(runId: string, request: AnyRequest): Promise<RouteResponse> {
    request.log({ runId });
    const answer = await bounded(this.#runtime.cancel(runId), request.deadline);
    const wait = waitOf(request);
    if (wait !== undefined) {
      if (answer === "requested") await this.#resume(runId, request, false);
      return this.#atEnd(runId, request, wait);
    }
    if (answer === "requested") return asCancelled(await this.#resume(runId, request, false));
    const run = await bounded(this.#runtime.show(runId), request.deadline);
    if (run?.status === "cancelled") return asCancelled(await this.#resume(runId, request, true));
    throw this.#ended(runId);
  }

  /** Waits for the end of the run, and tells how it ended. */
  async #atEnd(runId: string, { deadline }: AnyRequest, wait: Millis): Promise<RouteResponse> {
    const left = Math.max(0, Math.min(wait, deadline.remaining()));
    const run = await bounded(runAtEnd(this.#runtime.journal, runId, left), deadline);
    const headers = { Location: runPath(this.#options.basePath ?? "", runId) };
    if (!run.ending) return { status: 202, headers, body: { runId } };
    const { status, compensated } = run.ending;
    return { status: 200, headers, body: { runId, status, ...(compensated && { compensated }) } };
  }

  /** Resumes the run after the request's own work is done. A failure to resume does not change the status. */
  async #resume(runId: string, request: AnyRequest, isReplayed: boolean): Promise<RouteResponse> {
    const location = { Location: runPath(this.#options.basePath ?? "", runId) };
    const headers = { ...location, ...replayed(isReplayed, request) };
    if (isAsync(request)) return { status: 202, headers, body: { runId } };
    try {
      const outcome = await this.#resumeLogged(runId, request);
      return { status: 200, headers, body: stateJson(outcome) };
    } catch (error) {
      request.log({ error: `not resumed: ${toProblem(error).code}` });
      request.hide(error);
      return { status: 202, headers, body: { runId } };
    }
  }

  async #resumeLogged(runId: string, request: AnyRequest): Promise<RunOutcome<unknown>> {
    const { outcome } = await this.#executeLogged(runId, request, (onTaken) =>
      this.#runtime.resume(runId, { ...this.#limits(request), onTaken }),
    );
    return outcome;
  }

  /** `isTaken` tells whether this request has executed the run: otherwise the outcome was told before. */
  async #executeLogged(
    runId: string,
    { at, log, deadline }: AnyRequest,
    work: (onTaken: () => void) => Promise<RunOutcome<unknown>>,
  ): Promise<{ readonly outcome: RunOutcome<unknown>; readonly isTaken: boolean }> {
    using followed = this.#options.stepLog?.follow(runId);
    let isTaken = false;
    const onTaken = () => {
      isTaken = true;
    };
    const execute = async () => {
      const outcome = await work(onTaken);
      if (isTaken) this.#onOutcome(outcome, at);
      return outcome;
    };
    try {
      const outcome = await bounded(execute(), deadline);
      log({ runStatus: outcome.status });
      return { outcome, isTaken };
    } finally {
      if (followed && followed.steps.length > 0) log({ steps: followed.steps });
    }
  }

  #limits({ deadline }: AnyRequest) {
    const { drain, abort } = this.#options;
    return { deadline, lockWait: this.#lockWait, drain, signal: abort };
  }

  #ended(runId: string): Problem {
    const headers = { Location: runPath(this.#options.basePath ?? "", runId) };
    return new Problem(409, "RUN_ENDED", "the run has ended", { more: { runId }, headers });
  }
}

/** Returns a function that tells the listener of the app the error of a run that has failed or is blocked. */
function reporterOf({ onError }: AppOptions) {
  if (!onError) return undefined;
  return (outcome: RunOutcome<unknown>, at: ErrorSource) => {
    const failure = failureOf(outcome);
    if (!failure) return;
    // The journal keeps no stack, and the one of this line would mislead.
    const error = Object.assign(new Error(failure.message), failure, { stack: undefined });
    return onError(error, { ...at, runId: outcome.runId });
  };
}

/** Logs that a request was answered before, and returns the header that tells it. */
function replayed(isReplayed: boolean, { log }: AnyRequest): Readonly<Record<string, string>> {
  if (!isReplayed) return {};
  log({ replayed: true });
  return { "Idempotent-Replayed": "true" };
}

/** To the runtime, a cancelled run is one that has failed with RUN_CANCELLED. */
function asCancelled(response: RouteResponse): RouteResponse {
  const body = response.body as { readonly error?: { readonly code: string } };
  const isCancelled = body.error?.code === "RUN_CANCELLED";
  return isCancelled ? { ...response, body: { ...body, status: "cancelled" } } : response;
}

/** Throws a Problem for what the client got wrong: a text that is no cursor, an input that makes an invalid id, a time that is too long. */
function toInvalid(error: unknown): never {
  throw error instanceof RangeError ? new Problem(400, "INVALID", error.message) : error;
}

function isAsync({ headers }: AnyRequest): boolean {
  return /(^|[,;\s])respond-async($|[,;\s])/i.test(headers.get("prefer") ?? "");
}

/** The milliseconds of the preference `wait`, which has whole seconds. */
function waitOf({ headers }: AnyRequest): Millis | undefined {
  const [, seconds] =
    /(?:^|[,;\s])wait=(\d{1,5})(?:$|[,;\s])/i.exec(headers.get("prefer") ?? "") ?? [];
  return seconds === undefined ? undefined : Number(seconds) * 1_000;
}

/** Refuses a key that is not the run id in the input: one input is one run, whatever it comes through. */
async function checkKey(workflow: Workflow<unknown, unknown>, request: AnyRequest): Promise<void> {
  const { runId } = await workflow.prepare(request.body).catch(toInvalid);
  if (runId === request.key) return;
  const detail = `the input names the run ${quote(runId)}: send this id as the Idempotency-Key`;
  throw new Problem(422, "KEY_MISMATCH", detail, { more: { runId } });
}

/** Under the id of a singleton or a debounced run, the same order would be placed again. */
function namesItsRuns(workflow: string): Problem {
  const problem = `the workflow ${quote(workflow)} names its runs by their input`;
  const advice = "leave out singleton and debounce, and send the run's id as the Idempotency-Key";
  return new Problem(422, "RUNS_HAVE_NAMES", `${problem}: ${advice}`);
}

function unknownWorkflow(name: string): Problem {
  return new Problem(404, "UNKNOWN_WORKFLOW", `the workflow ${quote(name)} does not exist`);
}
