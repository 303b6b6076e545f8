import * as z from "zod";
import { RECORDS_PER_PAGE } from "../../../core/journal/records.ts";
import { isInternalSignal } from "../../json/run-json.ts";
import type { AppOptions } from "../options.ts";
import { type Route, route } from "../route.ts";
import {
  Accepted,
  Answered,
  Completed,
  digits,
  Published,
  Run,
  RunState,
  Suspended,
  text,
} from "../schemas.ts";
import { KeyedStart, RunHandlers } from "./run-handlers.ts";

const RunParams = z.object({ runId: text("run id") });

/** Clients cannot send the engine's own signals, such as the end of a child run. */
const SignalParams = RunParams.extend({
  signal: text("signal").refine((name) => !isInternalSignal(name), "must not start with ~"),
});

export function runRoutes(options: AppOptions): readonly Route[] {
  const { runtime, busyStatus = 423, statuses = {} } = options;
  if (!runtime) return [];
  const runs = new RunHandlers(runtime, options);
  return [
    route({
      operation: "startRun",
      method: "post",
      path: "/workflows/{workflow}/runs",
      access: "write",
      tag: "runs",
      keyed: true,
      headers: Prefer,
      summary: "Start a run of a workflow, or get the outcome of a started run",
      description:
        "The Idempotency-Key is the run's id, the body is the workflow's input. A workflow that names its runs takes that name alone, and neither `singleton` nor `debounce`. With one of these, the run has an id of its own, and the Idempotency-Key is what the starts have in common. The response is sent when the run has ended or has to wait.",
      params: z.object({ workflow: text("workflow") }),
      query: KeyedStart,
      body: z.unknown(),
      responses: {
        200: { description: "the run has completed", schema: Completed },
        202: { description: "the run resumes later", schema: Suspended },
      },
      problems: [...new Set([404, 409, 422, 423, 503, busyStatus, ...Object.values(statuses)])],
      handle: (request) =>
        Object.keys(request.query).length > 0
          ? runs.startKeyed(request.params.workflow, request.query, request)
          : runs.start(request.params.workflow, request),
    }),
    route({
      operation: "readRun",
      method: "get",
      path: "/runs/{runId}",
      access: "read",
      tag: "runs",
      summary: "Read a run with its timeline",
      params: RunParams,
      query: z.object({
        part: digits(1, 2 ** 31 - 1)
          .optional()
          .meta({
            description: "the number of a history: the current one, or the one before",
          }),
        after: z.string().max(600).optional().meta({ description: "`next` of the page before" }),
        limit: digits(1, RECORDS_PER_PAGE).optional(),
      }),
      responses: { 200: { description: "the run", schema: Run } },
      problems: [404],
      handle: (request) => runs.read(request.params.runId, request.query, request),
    }),
    route({
      operation: "signalRun",
      method: "post",
      path: "/runs/{runId}/signals/{signal}",
      access: "write",
      tag: "runs",
      keyed: true,
      headers: Prefer,
      summary: "Send a signal to a run, and resume the run",
      description: "The body is the signal's payload.",
      params: SignalParams,
      body: z.unknown(),
      responses: {
        200: {
          description: "delivered by this request or an earlier one; the state of the run",
          schema: RunState,
        },
        202: { description: "delivered; another process executes the run", schema: Accepted },
      },
      problems: [404, 409, 422],
      handle: (request) => runs.signal(request.params, request),
    }),
    route({
      operation: "updateRun",
      method: "post",
      path: "/runs/{runId}/updates/{update}",
      access: "write",
      tag: "runs",
      keyed: true,
      summary: "Send an update to a run, and get the workflow's answer",
      description: "The body is the update's payload.",
      params: RunParams.extend({ update: SignalParams.shape.signal }),
      body: z.unknown(),
      responses: {
        200: { description: "the answer", schema: Answered },
        202: { description: "delivered, and not answered yet: ask again", schema: Accepted },
      },
      problems: [404, 409, 422],
      handle: (request) => runs.update(request.params, request),
    }),
    route({
      operation: "queryRun",
      method: "get",
      path: "/runs/{runId}/published/{name}",
      access: "read",
      tag: "runs",
      summary: "Read the last value that a run has published under a name",
      params: RunParams.extend({ name: text("name", 100) }),
      responses: { 200: { description: "the value; null before the first", schema: Published } },
      problems: [404],
      handle: (request) => runs.query(request.params, request),
    }),
    route({
      operation: "cancelRun",
      method: "post",
      path: "/runs/{runId}/cancel",
      access: "write",
      tag: "runs",
      headers: PreferWait,
      summary: "Cancel a run: abort its step, cancel its children, and undo its work",
      params: RunParams,
      responses: {
        200: {
          description: "requested by this request or an earlier one; the state of the run",
          schema: RunState,
        },
        202: { description: "requested; another process executes the run", schema: Accepted },
      },
      description:
        "With `Prefer: wait=30`, the response is sent when the run has ended, and tells how: `cancelled`, or `completed` or `failed` before.",
      problems: [404, 409],
      handle: (request) => runs.cancel(request.params.runId, request),
    }),
    reopenRoute({
      operation: "retryRun",
      path: "/runs/{runId}/retry",
      summary: "Let a failed, cancelled or blocked run go on with its recorded results",
      reopen: (runId) => runtime.retry(runId),
      runs,
    }),
    reopenRoute({
      operation: "retryUndo",
      path: "/runs/{runId}/retry-undo",
      summary: "Attempt the failed undos of a run again",
      reopen: (runId) => runtime.retryUndo(runId),
      runs,
    }),
    route({
      operation: "forkRun",
      method: "post",
      path: "/runs/{runId}/fork",
      access: "write",
      tag: "runs",
      keyed: true,
      headers: Prefer,
      summary: "Start a new run with the recorded results of a run up to a step",
      description:
        "The Idempotency-Key is the new run's id. The step `from` and those after it are executed anew.",
      params: RunParams,
      body: z.strictObject({ from: text("from", 512) }),
      responses: {
        200: { description: "the state of the new run", schema: RunState },
        202: { description: "another process executes the new run", schema: Accepted },
      },
      problems: [404, 409, 422],
      handle: (request) => runs.fork(request.params.runId, request.body.from, request),
    }),
  ];
}

interface ReopenRoute {
  readonly operation: string;
  readonly path: string;
  readonly summary: string;
  readonly reopen: (runId: string) => Promise<unknown>;
  readonly runs: RunHandlers;
}

function reopenRoute({ reopen, runs, ...about }: ReopenRoute): Route {
  return route({
    ...about,
    method: "post",
    access: "write",
    tag: "runs",
    headers: Prefer,
    params: RunParams,
    responses: {
      200: { description: "the run goes on; its state", schema: RunState },
      202: { description: "another process executes the run", schema: Accepted },
    },
    problems: [404, 409, 422],
    handle: (request) => runs.reopen(request.params.runId, request, reopen),
  });
}

const Prefer = z.object({
  Prefer: z
    .string()
    .optional()
    .meta({ description: "respond-async: respond at once; another process executes the run" }),
});

const PreferWait = z.object({
  Prefer: z.string().optional().meta({
    description:
      "respond-async: respond at once; wait=30: respond when the run has ended, at most 30 seconds later",
  }),
});
