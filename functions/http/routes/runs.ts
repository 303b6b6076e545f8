import * as z from "zod";
import { deadline as limitOf, race } from "../../../core/lock/abort.ts";
import { quote, UnknownOutcomeError } from "../../../core/lock/errors.ts";
import type { Deadline, Millis } from "../../../core/lock/time.ts";
import { decode, hashOf } from "../../../core/steps/codec.ts";
import { UnknownRunError } from "../../../core/steps/errors.ts";
import type { Runtime } from "../../../core/steps/runtime.ts";
import type { AnyWorkflow, RunOutcome, Workflow } from "../../../core/steps/workflow.ts";
import type { AppOptions } from "../options.ts";
import { outcomeAnswer } from "../outcome.ts";
import { runPath } from "../path.ts";
import { noTime, Problem, toProblem } from "../problem.ts";
import { retryAfter } from "../retry-after.ts";
import { type Answer, type Call, type Route, route } from "../route.ts";
import { isInternal, runJson, stateJson } from "../run-json.ts";
import { Accepted, Completed, Run, RunState, Suspended, text } from "../schemas.ts";

const RunParams = z.object({ runId: text("run id") });

/** Nobody outside says that a run's child has ended. */
const SignalParams = RunParams.extend({
  signal: text("signal").refine((name) => !isInternal(name), "must not begin with ~"),
});

type AnyCall = Call<unknown, unknown, unknown>;

export function runRoutes(options: AppOptions): readonly Route[] {
  const { runtime, busyStatus = 423, statuses = {} } = options;
  if (!runtime) return [];
  const runs = new Runs(runtime, options);
  return [
    route({
      operation: "startRun",
      method: "post",
      path: "/workflows/{workflow}/runs",
      access: "write",
      tag: "runs",
      keyed: true,
      headers: Prefer,
      summary: "Begin a run of a workflow, or ask again what became of it",
      description:
        "The Idempotency-Key is the run's id, the body is the workflow's input. It answers when the run has ended or has to wait.",
      params: z.object({ workflow: text("workflow") }),
      body: z.unknown(),
      answers: {
        200: { description: "the run has completed", schema: Completed },
        202: { description: "the run goes on later", schema: Suspended },
      },
      problems: [...new Set([404, 409, 422, 423, busyStatus, ...Object.values(statuses)])],
      handle: (call) => runs.start(call.params.workflow, call),
    }),
    route({
      operation: "readRun",
      method: "get",
      path: "/runs/{runId}",
      access: "read",
      tag: "runs",
      summary: "A run with its timeline",
      params: RunParams,
      answers: { 200: { description: "the run", schema: Run } },
      problems: [404],
      handle: (call) => runs.read(call.params.runId, call),
    }),
    route({
      operation: "signalRun",
      method: "post",
      path: "/runs/{runId}/signals/{signal}",
      access: "write",
      tag: "runs",
      keyed: true,
      headers: Prefer,
      summary: "Leave a signal for a run, and carry it on",
      description: "The body is the signal's payload.",
      params: SignalParams,
      body: z.unknown(),
      answers: {
        200: { description: "delivered, now or before; where the run is now", schema: RunState },
        202: { description: "delivered; the run goes on elsewhere", schema: Accepted },
      },
      problems: [404, 409, 422],
      handle: (call) => runs.signal(call.params, call),
    }),
    route({
      operation: "cancelRun",
      method: "post",
      path: "/runs/{runId}/cancel",
      access: "write",
      tag: "runs",
      headers: Prefer,
      summary: "Stop a run at its next step, and undo what it has done",
      params: RunParams,
      answers: {
        200: { description: "asked for, now or before; where the run is now", schema: RunState },
        202: { description: "asked for; the run goes on elsewhere", schema: Accepted },
      },
      problems: [404, 409],
      handle: (call) => runs.cancel(call.params.runId, call),
    }),
  ];
}

const Prefer = z.object({
  Prefer: z
    .string()
    .optional()
    .meta({ description: "respond-async: answer at once, and leave the run to others" }),
});

class Runs {
  readonly #runtime: Runtime;
  readonly #options: AppOptions;
  readonly #workflows: ReadonlyMap<string, AnyWorkflow>;

  constructor(runtime: Runtime, options: AppOptions) {
    this.#runtime = runtime;
    this.#options = options;
    const oldestFirst = (options.workflows ?? []).toSorted((a, b) => a.version - b.version);
    this.#workflows = new Map(oldestFirst.map((workflow) => [workflow.name, workflow]));
  }

  async start(name: string, call: AnyCall): Promise<Answer> {
    const workflow = this.#workflows.get(name) as Workflow<unknown, unknown> | undefined;
    if (!workflow) throw unknownWorkflow(name);
    const id = call.key;
    call.note({ workflow: name, runId: id });
    let isTaken = false;
    const onTaken = () => {
      isTaken = true;
    };
    const outcome = await this.#following(id, call, () =>
      isAsync(call.request)
        ? this.#runtime.start(workflow, call.body, { id })
        : this.#runtime.drive(workflow, call.body, { id, ...this.#terms(call), onTaken }),
    );
    // Without any time left, a run is not even looked at.
    if (outcome.status === "busy" && call.deadline.remaining() <= 0) throw noTime();
    const isEnded = outcome.status === "completed" || outcome.status === "failed";
    const isReplayed = isEnded && !isTaken;
    if (isReplayed) call.note({ replayed: true });
    return outcomeAnswer(outcome, isReplayed, this.#options);
  }

  async read(runId: string, { signal, note }: AnyCall): Promise<Answer> {
    note({ runId });
    const run = await race(this.#runtime.journal.show(runId), signal);
    if (!run) throw new UnknownRunError(runId);
    const left = run.dueAt ? run.dueAt.getTime() - run.now.getTime() : Number.POSITIVE_INFINITY;
    const wait = run.status === "running" ? Math.min(left, 1_000) : left;
    const headers = run.ending ? {} : retryAfter(wait);
    return { status: 200, headers, body: runJson(run) };
  }

  async signal(
    { runId, signal: name }: { readonly runId: string; readonly signal: string },
    call: AnyCall,
  ): Promise<Answer> {
    call.note({ runId });
    const payload = call.body ?? null;
    const sending = this.#runtime.signal(runId, name, payload, { dedupeId: call.key });
    const delivered = await bounded(sending, call.deadline);
    if (delivered === "delivered") return this.#carryOn(runId, call, false);
    const run = await bounded(this.#runtime.journal.show(runId), call.deadline);
    // It may have ended the run, and its sender may not know: the same key still finds out.
    const first = run?.signals.find((one) => one.name === name && one.dedupeId === call.key);
    if (!first && delivered === "ended") throw this.#ended(runId);
    if (first) checkSame(first.payload, payload);
    return this.#carryOn(runId, call, true);
  }

  async cancel(runId: string, call: AnyCall): Promise<Answer> {
    call.note({ runId });
    const answer = await bounded(this.#runtime.cancel(runId), call.deadline);
    if (answer === "requested") return this.#carryOn(runId, call, false);
    const run = await bounded(this.#runtime.journal.show(runId), call.deadline);
    if (run?.status === "cancelled") return this.#carryOn(runId, call, true);
    throw this.#ended(runId);
  }

  /** What was asked for is done by now; where the run gets from there is told, but is no matter of the answer's status. */
  async #carryOn(runId: string, call: AnyCall, isReplayed: boolean): Promise<Answer> {
    if (isReplayed) call.note({ replayed: true });
    const replayed: Record<string, string> = isReplayed ? { "Idempotent-Replayed": "true" } : {};
    const headers = { Location: runPath(this.#options.basePath ?? "", runId), ...replayed };
    if (isAsync(call.request)) return { status: 202, headers, body: { runId } };
    try {
      const outcome = await this.#following(runId, call, () =>
        this.#runtime.resume(runId, this.#terms(call)),
      );
      return { status: 200, headers, body: stateJson(outcome) };
    } catch (error) {
      call.note({ error: `not carried on: ${toProblem(error).code}` });
      return { status: 202, headers, body: { runId } };
    }
  }

  async #following(
    runId: string,
    { note, deadline }: AnyCall,
    work: () => Promise<RunOutcome<unknown>>,
  ): Promise<RunOutcome<unknown>> {
    using followed = this.#options.trail?.follow(runId);
    try {
      const outcome = await bounded(work(), deadline);
      note({ runStatus: outcome.status });
      return outcome;
    } finally {
      if (followed && followed.steps.length > 0) note({ steps: followed.steps });
    }
  }

  #terms({ deadline }: AnyCall) {
    const { drain, abort } = this.#options;
    return { deadline, ...(drain && { drain }), ...(abort && { signal: abort }) };
  }

  #ended(runId: string): Problem {
    const headers = { Location: runPath(this.#options.basePath ?? "", runId) };
    return new Problem(409, "RUN_ENDED", "the run has ended", { more: { runId }, headers });
  }
}

/** The signal that came before under the same key must have said the same. */
function checkSame(first: string, payload: unknown): void {
  if (hashOf(decode(first)) === hashOf(payload)) return;
  throw new Problem(422, "SIGNAL_CONFLICT", "this key was used for a signal with another payload");
}

/** How long after the deadline the journal may still take to answer: a drive parks its run by then. */
const LETTING_GO: Millis = 1_000;

/** The promise's outcome, or a Problem where that does not come before the invocation is cut off. */
async function bounded<T>(promise: Promise<T>, deadline: Deadline): Promise<T> {
  const unknown = () => toProblem(new UnknownOutcomeError("the journal", "it was done"));
  using limit = limitOf(Math.max(0, deadline.remaining()) + LETTING_GO, unknown);
  return await race(promise, limit.signal);
}

function isAsync(request: Request): boolean {
  return /(^|[,;\s])respond-async($|[,;\s])/i.test(request.headers.get("prefer") ?? "");
}

function unknownWorkflow(name: string): Problem {
  return new Problem(404, "UNKNOWN_WORKFLOW", `there is no workflow ${quote(name)}`);
}
