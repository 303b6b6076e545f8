import { deadline } from "../../core/lock/abort.ts";
import { checkFunction } from "../../core/lock/checks.ts";
import { type Duration, deadlineIn, toMillis } from "../../core/lock/duration.ts";
import type { Lock, LockStore } from "../../core/lock/lock.ts";
import { checkOptionNames, type OptionNames } from "../../core/lock/options.ts";
import type { Millis } from "../../core/lock/time.ts";
import type { Etcd } from "../../core/stores/etcd/client/etcd.ts";
import { etcdGatewayClient, type GatewayOptions } from "../../core/stores/etcd/client/gateway.ts";
import { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
import { problemBody, problemHeaders, timeExceeded, toProblem } from "../http/problem.ts";
import { runLocked } from "../invocation/run-locked.ts";

export interface LockedFetchOptions<Env> {
  /** The options of etcd's gateway. A client is opened per request: Workers forbid sharing I/O between requests. */
  readonly etcd: GatewayOptions | ((env: Env) => GatewayOptions);

  /** The lock's name, or a function of the request that returns the name. */
  readonly name: string | ((request: Request, env: Env) => string);

  /** The longest wait for the lock; at least a second is left for work. Default 0: one attempt. */
  readonly wait?: Duration;

  /** The time limit of a request; `lock.signal` aborts then. At least 2 s; default 10 s. */
  readonly timeout?: Duration;

  /** The prefix of the locks' keys: "" or a text that ends in "/". Default "". */
  readonly prefix?: string;
}

const OPTIONS = {
  etcd: true,
  name: true,
  wait: true,
  timeout: true,
  prefix: true,
} satisfies OptionNames<LockedFetchOptions<unknown>>;

/** The lock and the client of one request. Both end with the request. */
export interface LockedContext<Env> {
  readonly lock: Lock;
  readonly etcd: Etcd;
  readonly env: Env;
}

/** The third argument of a Worker's `fetch`. */
interface EdgeContext {
  waitUntil(promise: Promise<unknown>): void;
}

type EdgeHandler<Env> = (request: Request, env: Env, context?: EdgeContext) => Promise<Response>;

/** The time after `timeout` in which the lock is released. */
const RESERVE: Millis = 1_000;

/**
 * Returns a fetch handler that runs under a lock in etcd and releases the lock before the response.
 *
 *     const etcd = { endpoints: ["etcd.internal:2379"] };
 *     export default {
 *       fetch: lockedFetch({ etcd, name: "report" }, async (request, { lock, etcd }) => {
 *         const value = await request.text();
 *         await guardedWrite(etcd, lock.fence, [{ op: "put", key: "report", value }]);
 *         return new Response("done");
 *       }),
 *     };
 *
 * Errors of this package become problem responses: 423 with Retry-After when the lock is busy, 409 for a late holder, 503
 * when etcd is unavailable or the lock was lost. All other errors are rethrown to the runtime.
 *
 * The lock is never renewed. On Workers, clocks stand still between two I/O operations: after a long computation
 * `assertHeld` and `lock.signal` do not notice an expired lock; the fence does. A streamed body is sent without the lock.
 */
export function lockedFetch<Env = unknown>(
  options: LockedFetchOptions<Env>,
  body: (request: Request, context: LockedContext<Env>) => Promise<Response>,
): EdgeHandler<Env> {
  checkOptionNames("lockedFetch", options, OPTIONS);
  checkFunction("the body of lockedFetch", body);
  const { prefix = "" } = options;
  const wait = toMillis("wait", options.wait ?? 0);
  const timeout = toMillis("timeout", options.timeout ?? "10s", 2_000);
  // Of the client's state only text may pass from one request to another.
  const tokens = new Map<string, string>();
  return async (request, env, context) => {
    const etcd = etcdGatewayClient({ tokens, ...settingOf(options.etcd, env) });
    const locks = etcdLocks(etcd, { prefix, label: "edge", closeEtcd: true });
    const name = settingOf(options.name, request, env);
    let isWorking = false;
    const run = async (lock: Lock) => {
      isWorking = true;
      try {
        return await body(request, { lock, etcd, env });
      } finally {
        isWorking = false;
      }
    };
    const responding = respond(locks, { name, wait, timeout, request }, run);
    // Work that was abandoned keeps its lock until the lock expires.
    const close = async () => {
      if (!isWorking) await locks.close();
    };
    const closing = responding.then(close, close);
    // When the client disconnects, Workers end unawaited work, and the lock would stay until its ttl is over.
    if (context?.waitUntil) context.waitUntil(closing);
    else await closing;
    return responding;
  };
}

function settingOf<Args extends unknown[], T>(given: T | ((...args: Args) => T), ...args: Args): T {
  return typeof given === "function" ? (given as (...args: Args) => T)(...args) : given;
}

interface LockedRequest {
  readonly name: string;
  readonly wait: Millis;
  readonly timeout: Millis;
  readonly request: Request;
}

async function respond(
  locks: LockStore,
  { name, wait, timeout, request }: LockedRequest,
  body: (lock: Lock) => Promise<Response>,
): Promise<Response> {
  const end = deadlineIn(timeout + RESERVE);
  using limit = deadline(timeout, timeExceeded, request.signal);
  try {
    const terms = { name, wait, end, reserve: RESERVE, signal: limit.signal };
    return await runLocked(locks, terms, body);
  } catch (error) {
    const { aborted, reason } = request.signal;
    const response = aborted && error === reason ? clientClosed() : problemResponse(error);
    if (response) return response;
    throw error;
  }
}

/** The client does not read the response. The status is nginx's "client closed request". */
function clientClosed(): Response {
  return new Response(null, { status: 499 });
}

/**
 * Converts an error of this package to a response, `application/problem+json`: 423 for a busy lock, 409 for a late
 * holder, 503 for an unavailable store.
 *
 * Undefined for any other error and for internal faults: rethrow the error, so that the runtime logs it.
 */
export function problemResponse(error: unknown): Response | undefined {
  const problem = toProblem(error);
  const { status } = problem;
  if (status === 500) return undefined;
  const body = problemBody(problem, crypto.randomUUID());
  return Response.json(body, { status, headers: problemHeaders(problem) });
}
