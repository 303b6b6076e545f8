import { deadline, follow } from "./abort.ts";
import type { Backend, Hold, LockRequest } from "./backend.ts";
import { checkName, checkText, checkWhole, HIGHEST_GENERATION } from "./checks.ts";
import { LockLostError, LockTimeoutError, StoreClosedError } from "./errors.ts";
import type { LockListener } from "./events.ts";
import { Holding } from "./holding.ts";
import { Line } from "./line.ts";
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
import { type Claims, pollingBackend } from "./polling.ts";
import { type CheckedRequest, checkRequest } from "./request.ts";
import { elapsedSince, instant } from "./time.ts";

export interface StoreOptions {
  /** Who this client is, for humans that look at a lock's holder; at most 200 bytes. Default: the store's name. */
  readonly label?: string;

  /** Called with everything that happens to this client's locks. What it throws is lost. */
  readonly onEvent?: LockListener;

  /** How many callers may wait at the same time, over all names. Default 10,000. */
  readonly maxWaiters?: number;
}

/** The public contract on top of any backend. */
export function lockStore(backend: Backend, options: Omit<StoreOptions, "label"> = {}): LockStore {
  const { maxWaiters = 10_000, onEvent } = options;
  checkWhole("maxWaiters", maxWaiters, 0, Number.MAX_SAFE_INTEGER);
  return new Client(backend, new Line(maxWaiters), listener(onEvent));
}

/** The public contract on top of a store that keeps one record per lock. */
export function pollingStore(claims: Claims, { label, ...options }: StoreOptions = {}): LockStore {
  if (label !== undefined) checkText("label", label, 200);
  return lockStore(pollingBackend(claims, label ?? claims.traits.name), options);
}

interface Acquired {
  readonly hold: Hold;

  /** Leaves the local lines. */
  readonly leave: () => void;
}

const TIMED_OUT = new Error("waited long enough");

class Client implements LockStore {
  readonly #backend: Backend;
  readonly #line: Line;
  readonly #notify: LockListener;
  readonly #closing = new AbortController();
  readonly #acquiring = new Set<Promise<unknown>>();
  readonly #holding = new Set<Holding>();
  #closed: Promise<void> | undefined;

  constructor(backend: Backend, line: Line, notify: LockListener) {
    this.#backend = backend;
    this.#line = line;
    this.#notify = notify;
  }

  get traits(): StoreTraits {
    return this.#backend.traits;
  }

  async tryLock(name: string, options: TryLockOptions): Promise<Lock | undefined> {
    return await this.#acquire([name], { ...options, wait: 0 });
  }

  async lock(name: string, options: LockOptions): Promise<Lock> {
    return this.#insist([name], options);
  }

  async lockAll(names: readonly string[], options: LockOptions): Promise<LockSet> {
    return this.#insist(names, options);
  }

  async withLock<T>(
    name: string,
    options: LockOptions,
    body: (lock: Lock) => Promise<T>,
  ): Promise<T> {
    const lock = await this.#insist([name], options);
    let result: T;
    try {
      result = await body(lock);
    } catch (error) {
      await lock[Symbol.asyncDispose]();
      throw error;
    }
    // A release that failed is no failure of the body's: the lock expires by itself.
    const answer = await lock.unlock().catch(() => "released");
    if (answer === "was-lost" || lock.loss) throw lock.loss ?? new LockLostError([name], "taken");
    return result;
  }

  async inspect(name: string): Promise<LockInfo> {
    checkName(name);
    this.#closing.signal.throwIfAborted();
    return this.#withLocalWaiters(await this.#backend.inspect(name));
  }

  async list(prefix = ""): Promise<readonly LockInfo[]> {
    if (prefix !== "") checkName(prefix);
    this.#closing.signal.throwIfAborted();
    return (await this.#backend.list(prefix)).map((info) => this.#withLocalWaiters(info));
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
    await Promise.allSettled(this.#acquiring);
    await Promise.allSettled([...this.#holding].map((holding) => holding.unlock("closed")));
    await this.#backend.close();
  }

  async #insist(names: readonly string[], options: LockOptions): Promise<Holding> {
    const holding = await this.#acquire(names, options);
    if (holding === undefined) throw new LockTimeoutError(names, options.wait);
    return holding;
  }

  async #acquire(names: readonly string[], options: LockOptions): Promise<Holding | undefined> {
    const request = checkRequest(names, options, this.traits);
    const scope = follow(options.signal, this.#closing.signal);
    const acquiring = this.#acquireInTurn(request, scope.signal);
    this.#acquiring.add(acquiring);
    try {
      return await acquiring;
    } finally {
      this.#acquiring.delete(acquiring);
      scope[Symbol.dispose]();
    }
  }

  async #acquireInTurn(request: CheckedRequest, signal: AbortSignal): Promise<Holding | undefined> {
    signal.throwIfAborted();
    const { names } = request;
    const startedAt = instant();
    let fences: readonly string[] | undefined;
    const notify: LockListener = (event) => this.#notify(fences ? { ...event, fences } : event);
    const acquired = await this.#stand({ ...request, signal, notify }).catch((error) => {
      notify({ type: "failed", names, error, waited: elapsedSince(startedAt) });
      throw error;
    });
    const waited = elapsedSince(startedAt);
    if (acquired === undefined) {
      notify({ type: "busy", names, waited });
      return undefined;
    }
    const { hold, leave } = acquired;
    fences = hold.fences.map(String);
    notify({ type: "acquired", names, fences, waited });
    const holding = new Holding(names, hold, notify, () => {
      this.#holding.delete(holding);
      leave();
    });
    this.#holding.add(holding);
    return holding;
  }

  /** Stands in the local lines, then in the store's. */
  async #stand(request: LockRequest): Promise<Acquired | undefined> {
    const { names, wait, signal } = request;
    const startedAt = instant();
    const leave = await this.#enter(names, wait, signal);
    if (leave === undefined) return undefined;
    let hold: Hold | undefined;
    try {
      const left = Math.max(0, wait - elapsedSince(startedAt));
      hold = await this.#backend.acquire({ ...request, wait: left });
    } finally {
      if (hold === undefined) leave();
    }
    return hold && { hold, leave };
  }

  /** Enters the local lines of all names; resolves to the function that leaves them, or undefined after `wait`. */
  async #enter(
    names: readonly string[],
    wait: number,
    signal: AbortSignal,
  ): Promise<(() => void) | undefined> {
    const entered: string[] = [];
    const leave = () => {
      for (const name of entered.splice(0)) this.#line.leave(name);
    };
    for (const name of names) {
      if (!this.#line.tryEnter(name)) break;
      entered.push(name);
    }
    if (entered.length === names.length) return leave;
    if (wait <= 0) {
      leave();
      return undefined;
    }
    const limit = deadline(wait, () => TIMED_OUT);
    const patience = follow(signal, limit.signal);
    try {
      for (const name of names.slice(entered.length)) {
        await this.#line.enter(name, patience.signal);
        entered.push(name);
      }
      return leave;
    } catch (error) {
      leave();
      if (error === TIMED_OUT) return undefined;
      throw error;
    } finally {
      patience[Symbol.dispose]();
      limit[Symbol.dispose]();
    }
  }

  #withLocalWaiters(info: LockInfo): LockInfo {
    return { ...info, waiters: info.waiters + this.#line.waiting(info.name) };
  }
}
