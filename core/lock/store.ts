import { deadline, follow, noAnswer, race, type Scope } from "./abort.ts";
import { releaseUntilKnown } from "./attempts.ts";
import type { Backend, Hold, LockRequest } from "./backend.ts";
import { checkName, checkText, checkWhole, HIGHEST_GENERATION } from "./checks.ts";
import type { Claims } from "./claims.ts";
import {
  isLoss,
  LockLostError,
  LockTimeoutError,
  type LossReason,
  quote,
  StoreClosedError,
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "./errors.ts";
import type { LockListener } from "./events.ts";
import { checkFenceText, type Fence, FenceInvalidError } from "./fence.ts";
import type { Incidents } from "./incidents.ts";
import { KeyedQueue } from "./keyed-queue.ts";
import { listener } from "./listener.ts";
import type {
  Lock,
  LockInfo,
  LockOptions,
  LockSet,
  LockStore,
  StoreTraits,
  TryLockOptions,
} from "./lock.ts";
import { closureOf, type InTime, LockHandle } from "./lock-handle.ts";
import { type HolderOptions, isIncidentSlot, pollingBackend } from "./polling.ts";
import { type CheckedRequest, checkCall, checkRequest } from "./request.ts";
import {
  elapsedSince,
  type Instant,
  instant,
  keepProcessAlive,
  LONGEST_CALL,
  type Millis,
} from "./time.ts";
import { type WakeUps, wakeUpsOver } from "./wake-ups.ts";

export interface StoreOptions {
  /** The name of this client in a lock's holder, for humans; at most 200 bytes. Default: the store's name. */
  readonly label?: string;

  /** The command of this client's process, in a lock's holder, for humans; at most 1,000 bytes. No secrets: all may read it. */
  readonly command?: string | undefined;

  /** Called with each event of this client's locks. Its errors are ignored. */
  readonly onEvent?: LockListener;

  /** The most callers that wait behind other callers of this client for the same lock, over all names. Default 10,000. */
  readonly maxWaiters?: number;
}

/** Makes a LockStore of a backend. */
export function lockStore(
  backend: Backend,
  options: Omit<StoreOptions, "command"> = {},
): LockStore {
  const { maxWaiters = 10_000, onEvent, label = backend.traits.name } = options;
  checkWhole("maxWaiters", maxWaiters, 0, Number.MAX_SAFE_INTEGER);
  return new LockClient(backend, new KeyedQueue(maxWaiters), onEvent && listener(onEvent), label);
}

/** Makes a LockStore of the three writes of a store that keeps one record per lock. */
export function pollingStore(claims: Claims, options: StoreOptions = {}): LockStore {
  const holder = checkHolder(options, claims.traits.name);
  return lockStore(pollingBackend(claims, holder), options);
}

/** Returns what the client's holders say of themselves. Throws a RangeError or TypeError for an invalid option. */
export function checkHolder(
  { label, command }: StoreOptions,
  defaultLabel: string,
): Required<HolderOptions> {
  if (label !== undefined) checkText("label", label, 200);
  if (command !== undefined) checkText("command", command, 1_000);
  return { label: label ?? defaultLabel, command };
}

/** What a request has beside its options. */
interface Call extends Pick<LockRequest, "signal" | "notify"> {
  readonly startedAt: Instant;
}

interface Acquired {
  readonly hold: Hold;

  /** Leaves the local queues. */
  readonly leave: () => void;
}

const TIMED_OUT = new Error("the wait is over");

/** How long after the caller's patience the request is aborted. Until then, a last answer may come. */
const LATE: Millis = 200;

/** How long the withdrawal of a claim may take after that, before the call rejects with an unknown outcome. */
const WITHDRAWING: Millis = 250;

/** The same for a request that was aborted before its time. */
const ABORTING: Millis = 2_000;

/** How long close waits for calls under way, and then for the connections to end. */
const CLOSING: readonly [underWay: Millis, connections: Millis] = [1_500, 450];

class LockClient implements LockStore {
  readonly wakeUps: WakeUps | undefined;
  readonly incidents: Incidents;
  readonly #backend: Backend;
  readonly #queue: KeyedQueue;
  readonly #notify: LockListener | undefined;
  readonly #closing = new AbortController();

  /** Acquires, releases and wake-ups, also those that go on in the background. */
  readonly #underWay = new Set<Promise<unknown>>();
  readonly #handles = new Set<LockHandle>();
  #closed: Promise<void> | undefined;

  constructor(
    backend: Backend,
    queue: KeyedQueue,
    notify: LockListener | undefined,
    label: string,
  ) {
    this.#backend = backend;
    this.#queue = queue;
    this.#notify = notify;
    const { wakeUps } = backend;
    this.wakeUps = wakeUps && wakeUpsOver(wakeUps, (sending) => this.#track(sending));
    const { incidents } = backend;
    this.incidents = {
      process: label,
      read: () => incidents.read(),
      replace: (choose, text, limit) =>
        this.#track(
          (async () => {
            this.#closing.signal.throwIfAborted();
            return incidents.write(choose(await incidents.read()), text, limit);
          })(),
        ),
    };
  }

  get traits(): StoreTraits {
    return this.#backend.traits;
  }

  async tryLock(name: string, options: TryLockOptions): Promise<Lock | undefined> {
    checkCall("tryLock", options);
    const request = checkRequest([name], { ...options, wait: 0 }, this.traits);
    return await this.#acquire(request, options.signal);
  }

  lock(name: string, options: LockOptions): Promise<Lock> {
    return this.#acquireOrTimeOut("lock", [name], options);
  }

  lockAll(names: readonly string[], options: LockOptions): Promise<LockSet> {
    return this.#acquireOrTimeOut("lockAll", names, options);
  }

  async withLock<T>(
    name: string,
    options: LockOptions,
    body: (lock: Lock) => Promise<T>,
  ): Promise<T> {
    const lock = await this.#acquireOrTimeOut("withLock", [name], options, body);
    let result: T;
    try {
      result = await body(lock);
    } catch (error) {
      await lock[Symbol.asyncDispose]();
      throw error;
    }
    const closed = closureOf(lock);
    if (closed) throw closed;
    // A failed release is no failure of the body: the lock expires by itself.
    const answer = await lock.unlock().catch(() => "released");
    if (answer === "was-lost" || lock.loss) throw lock.loss ?? new LockLostError([name], "taken");
    return result;
  }

  async whenFree(name: string, signal: AbortSignal): Promise<void> {
    checkName(name);
    using limit = follow(signal, this.#closing.signal);
    limit.signal.throwIfAborted();
    await this.#backend.whenFree(name, limit.signal).catch((error) => {
      limit.signal.throwIfAborted();
      throw error;
    });
  }

  async inspect(name: string): Promise<LockInfo> {
    checkName(name);
    this.#closing.signal.throwIfAborted();
    return this.#withLocalWaiters((await this.#backend.find(name)).info);
  }

  async list(prefix = ""): Promise<readonly LockInfo[]> {
    if (prefix !== "") checkName(prefix);
    this.#closing.signal.throwIfAborted();
    const found = await this.#backend.list(prefix);
    return found
      .filter((info) => !isIncidentSlot(info))
      .map((info) => this.#withLocalWaiters(info));
  }

  async release(name: string, options: { readonly fence: Fence | string }): Promise<LockInfo> {
    checkName(name);
    checkCall("release", options);
    const fence = checkFenceText(options.fence);
    const startedAt = instant();
    let last: string | undefined;
    for (;;) {
      this.#closing.signal.throwIfAborted();
      const { info, drop } = await this.#backend.find(name);
      checkHolderFence(info, fence);
      const holder = JSON.stringify([info.holder, info.about]);
      if (holder === last || elapsedSince(startedAt) >= LONGEST_CALL) {
        throw new StoreRefusedError(this.traits.name, notRemoved(info));
      }
      last = holder;
      const remaining = info.expiresIn ?? 0;
      const request = {
        drop,
        store: this.traits.name,
        names: [name],
        ttl: LONGEST_CALL,
        remaining,
      };
      // Otherwise the holder has changed: the next look refuses the fence, or finds another text of the holder.
      if (await this.#track(releaseUntilKnown(request))) return info;
    }
  }

  async raiseGeneration(least = 0): Promise<number> {
    checkWhole("generation", least, 0, HIGHEST_GENERATION);
    this.#closing.signal.throwIfAborted();
    return this.#backend.raiseGeneration(least);
  }

  close(): Promise<void> {
    this.#closed ??= this.#closeOnce();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #closeOnce(): Promise<void> {
    this.#closing.abort(new StoreClosedError());
    const [underWay, connections] = CLOSING;
    await atMost(underWay, this.#releaseAll());
    await atMost(connections, this.#backend.close());
  }

  async #releaseAll(): Promise<void> {
    do {
      for (const handle of this.#handles) handle.unlock("closed").catch(() => {});
      await Promise.allSettled(this.#underWay);
    } while (this.#underWay.size + this.#handles.size > 0);
  }

  #track<T>(promise: Promise<T>): Promise<T> {
    this.#underWay.add(promise);
    const forget = () => this.#underWay.delete(promise);
    promise.then(forget, forget);
    return promise;
  }

  async #acquireOrTimeOut(
    call: "lock" | "lockAll" | "withLock",
    names: readonly string[],
    options: LockOptions,
    body?: unknown,
  ): Promise<LockHandle> {
    checkCall(call, options, body);
    const request = checkRequest(names, options, this.traits);
    const handle = await this.#acquire(request, options.signal);
    if (handle === undefined) {
      const problem = isOver(request) ? "was not requested: the deadline is over" : undefined;
      throw new LockTimeoutError(names, Math.round(request.wait), problem);
    }
    return handle;
  }

  async #acquire(
    request: CheckedRequest,
    caller: AbortSignal | undefined,
  ): Promise<LockHandle | undefined> {
    if (isOver(request)) return undefined;
    const { patience } = request;
    const problem = `no answer within ${Math.round(patience)} ms`;
    const unavailable = () => new StoreUnavailableError(this.traits.name, problem);
    const limit = deadline(patience + LATE, unavailable, caller, this.#closing.signal);
    try {
      return await this.#track(this.#acquireInTurn(request, limit.signal));
    } finally {
      limit[Symbol.dispose]();
    }
  }

  async #acquireInTurn(
    request: CheckedRequest,
    signal: AbortSignal,
  ): Promise<LockHandle | undefined> {
    signal.throwIfAborted();
    const { names } = request;
    const startedAt = instant();
    const waited = () => elapsedSince(startedAt);
    const listen = this.#notify;
    let fences: readonly string[] | undefined;
    const notify: LockListener | undefined =
      listen && ((event) => listen(fences ? { ...event, fences } : event));
    let acquired: Acquired | undefined;
    try {
      acquired = await this.#queueAndAcquire(request, { startedAt, signal, notify });
    } catch (error) {
      notify?.({ type: "failed", names, error, waited: waited() });
      throw error;
    }
    if (acquired === undefined) {
      notify?.({ type: "busy", names, waited: waited() });
      return undefined;
    }
    const { leave, hold: own } = acquired;
    const release = (why: LossReason) => this.#track(own.release(why).finally(leave));
    const hold: Hold = { ...own, release };
    if (notify) {
      fences = hold.fences.map(String);
      notify({ type: "acquired", names, fences, waited: waited() });
    }
    const inTime = this.#bounded(request);
    const handle = new LockHandle(names, hold, notify, inTime, () => this.#handles.delete(handle));
    // After a loss, other callers of this client may compete for the lock while the old body still runs.
    hold.lease.onEnd((why) => isLoss(why) && leave());
    this.#handles.add(handle);
    return handle;
  }

  /** Waits in the local queues, then acquires at the store. */
  async #queueAndAcquire(
    request: CheckedRequest,
    { startedAt, signal, notify }: Call,
  ): Promise<Acquired | undefined> {
    const { names, wait } = request;
    const leave = await this.#enterQueues(names, wait, signal);
    if (leave === undefined) return undefined;
    const left = Math.max(0, wait - elapsedSince(startedAt));
    const acquiring = this.#backend.acquire({ ...request, wait: left, signal, notify });
    let hold: Hold | undefined;
    let isLate = false;
    try {
      hold = await race(acquiring, signal);
    } catch (error) {
      if (!signal.aborted) throw error;
      // Some time for the withdrawal.
      using end = this.#endOf(request, startedAt);
      hold = await race(acquiring, end.signal).catch((failure) => {
        isLate = failure === end.signal.reason;
        throw failure;
      });
    } finally {
      if (isLate) void this.#track(releaseLate(acquiring).finally(leave));
      else if (hold === undefined) leave();
    }
    return hold && { hold, leave };
  }

  /** Returns a signal that aborts when the caller of an aborted request gets its answer, known or not. */
  #endOf({ names, patience }: CheckedRequest, startedAt: Instant): Scope {
    const left = patience + LATE + WITHDRAWING - elapsedSince(startedAt);
    const what = `lock ${quote(...names)} was taken; it is withdrawn, or expires by itself`;
    return deadline(Math.min(left, ABORTING), () => this.#unknown(what));
  }

  /** Bounds the calls of a handle by the deadline of its request. */
  #bounded({ names, deadline: end }: CheckedRequest): InTime {
    return (what, call, longest = Number.POSITIVE_INFINITY) => {
      const left = Math.max(0, end?.remaining() ?? Number.POSITIVE_INFINITY);
      const span = Math.min(left, longest);
      if (span === Number.POSITIVE_INFINITY) return call;
      const outcome = `lock ${quote(...names)} was ${what}; it expires by itself`;
      const limit = deadline(span + LATE, () => this.#unknown(outcome));
      return race(call, limit.signal).finally(() => limit[Symbol.dispose]());
    };
  }

  #unknown(what: string): UnknownOutcomeError {
    return new UnknownOutcomeError(this.traits.name, what);
  }

  /** Enters the local queues of all names. Resolves to the function that leaves them, or to undefined after `wait`. */
  async #enterQueues(
    names: readonly string[],
    wait: number,
    signal: AbortSignal,
  ): Promise<(() => void) | undefined> {
    const entered: string[] = [];
    const leave = () => {
      for (const name of entered.splice(0)) this.#queue.leave(name);
    };
    for (const name of names) {
      if (!this.#queue.tryEnter(name)) break;
      entered.push(name);
    }
    if (entered.length === names.length) return leave;
    if (wait <= 0) {
      leave();
      return undefined;
    }
    const limit = deadline(wait, () => TIMED_OUT);
    // An endless wait has no timer of its own that keeps the process alive.
    const letExit = keepProcessAlive();
    const patience = follow(signal, limit.signal);
    try {
      for (const name of names.slice(entered.length)) {
        await this.#queue.enter(name, patience.signal);
        entered.push(name);
      }
      return leave;
    } catch (error) {
      leave();
      if (error === TIMED_OUT) return undefined;
      throw error;
    } finally {
      letExit();
      patience[Symbol.dispose]();
      limit[Symbol.dispose]();
    }
  }

  #withLocalWaiters(info: LockInfo): LockInfo {
    return { ...info, waiters: info.waiters + this.#queue.waiting(info.name) };
  }
}

/** Throws a FenceInvalidError unless the lock has a holder with this fence. */
function checkHolderFence({ name, holder, fence }: LockInfo, given: string): void {
  if (holder !== undefined && fence === given) return;
  const actual =
    holder === undefined ? "has no holder" : `is held by ${holder} with fence ${fence}`;
  throw new FenceInvalidError(`lock ${quote(name)} ${actual}; nothing was released`);
}

function notRemoved({ name, holder }: LockInfo): string {
  const why = "its value may be no text; release it with the program that took it";
  return `lock ${quote(name)} is held by ${holder}, and was not removed: ${why}`;
}

/** Releases the hold of an acquire that has ended too late. */
async function releaseLate(acquiring: Promise<Hold | undefined>): Promise<void> {
  const hold = await acquiring.catch(() => undefined);
  await hold?.release("released").catch(() => {});
}

/** Waits for the work for at most `span` milliseconds. Never rejects. */
async function atMost(span: Millis, work: Promise<unknown>): Promise<void> {
  const limit = deadline(span, noAnswer);
  await race(work, limit.signal).catch(() => {});
  limit[Symbol.dispose]();
}

/** Whether the caller's deadline leaves no time for the request. */
function isOver({ patience }: CheckedRequest): boolean {
  return patience === 0;
}
