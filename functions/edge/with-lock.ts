import type { Etcd } from "../../core/etcd/etcd.ts";
import { type GatewayOptions, openEtcdGateway } from "../../core/etcd/gateway.ts";
import { deadline } from "../../core/lock/abort.ts";
import type { Lock, LockStore } from "../../core/lock/lock.ts";
import { deadlineIn, type Millis } from "../../core/lock/time.ts";
import { type Duration, toMillis } from "../../core/steps/duration.ts";
import { etcdStore } from "../../core/stores/etcd/etcd-store.ts";
import { noTime } from "../http/problem.ts";
import { underLock } from "../lambda/under-lock.ts";
import { problemResponse } from "./problem-response.ts";

export interface EdgeLockOptions<Env> {
  /** Where etcd is. What this gives is opened for each request: a Worker may use nothing that another request opened. */
  readonly etcd: GatewayOptions | ((env: Env) => GatewayOptions);

  /** The lock's name, for every request or for this one. */
  readonly name: string | ((request: Request, env: Env) => string);

  /** How long to stand in line, and no longer than leaves a second to work. Default 0: one attempt. */
  readonly wait?: Duration;

  /** How long a request may take; `lock.signal` aborts then. From 2 s; default 10 s. */
  readonly timeout?: Duration;

  /** Stands before the keys of locks: "" or a text that ends in "/". Default "". */
  readonly prefix?: string;
}

/** What a request works with; all of it ends with the request. */
export interface UnderLock<Env> {
  readonly lock: Lock;
  readonly etcd: Etcd;
  readonly env: Env;
}

/** The third argument of a Worker's `fetch`. */
export interface EdgeContext {
  waitUntil(promise: Promise<unknown>): void;
}

export type EdgeHandler<Env> = (
  request: Request,
  env: Env,
  context?: EdgeContext,
) => Promise<Response>;

/** How much longer than `timeout` the lock lives, at least, to be given back. */
const RESERVE: Millis = 1_000;

/**
 * A fetch handler that runs under a lock in etcd, which is given back before it answers.
 *
 *     export default {
 *       fetch: withLock({ etcd: (env) => env.ETCD, name: "report" }, async (request, { lock, etcd }) => {
 *         await guardedWrite(etcd, lock.fence, [put("report", await request.text())]);
 *         return new Response("done");
 *       }),
 *     };
 *
 * Answers problems instead of calling `body`, or when it throws one of our errors: 423 with Retry-After where others have
 * the lock, 409 for a late holder, 503 where etcd is away or the lock was lost. All else that is thrown is for the runtime.
 *
 * The lock is never renewed. On Workers, clocks stand still between one I/O and the next: after a long computation,
 * `assertHeld` and `lock.signal` know nothing of it, and the fence does. A body that is streamed is no longer under the lock.
 */
export function withLock<Env = unknown>(
  options: EdgeLockOptions<Env>,
  body: (request: Request, under: UnderLock<Env>) => Promise<Response>,
): EdgeHandler<Env> {
  const { prefix = "" } = options;
  const wait = toMillis("wait", options.wait ?? 0);
  const timeout = toMillis("timeout", options.timeout ?? "10s", 2_000);
  // Of all that is opened, only text may pass from one request to another.
  const tokens = new Map<string, string>();
  return async (request, env, context) => {
    const etcd = openEtcdGateway({ tokens, ...of(options.etcd, env) });
    const locks = etcdStore(etcd, { prefix, label: "edge", closeEtcd: true });
    const name = of(options.name, request, env);
    const carry = (lock: Lock) => body(request, { lock, etcd, env });
    const answering = answer(locks, { name, wait, timeout, request }, carry);
    const close = () => locks.close();
    const closing = answering.then(close, close);
    // Where a client goes away, Workers end what nobody waits for: the lock would be held until its ttl is over.
    if (context?.waitUntil) context.waitUntil(closing);
    else await closing;
    return answering;
  };
}

function of<Args extends unknown[], T>(given: T | ((...args: Args) => T), ...args: Args): T {
  return typeof given === "function" ? (given as (...args: Args) => T)(...args) : given;
}

interface Asked {
  readonly name: string;
  readonly wait: Millis;
  readonly timeout: Millis;
  readonly request: Request;
}

async function answer(
  locks: LockStore,
  { name, wait, timeout, request }: Asked,
  body: (lock: Lock) => Promise<Response>,
): Promise<Response> {
  const end = deadlineIn(timeout + RESERVE);
  using limit = deadline(timeout, noTime, request.signal);
  try {
    const locking = { name, wait, end, reserve: RESERVE, signal: limit.signal };
    return await underLock(locks, locking, body);
  } catch (error) {
    const { aborted, reason } = request.signal;
    const response = aborted && error === reason ? gone() : problemResponse(error);
    if (response) return response;
    throw error;
  }
}

/** Nobody is there to read it. The status is that of nginx for clients that have gone away. */
function gone(): Response {
  return new Response(null, { status: 499 });
}
