import type { Journal } from "../journal/journal.ts";
import { sleep } from "../lock/abort.ts";
import { type Duration, toMillis } from "../lock/duration.ts";
import { hasCode } from "../lock/errors.ts";
import type { LockStore } from "../lock/lock.ts";
import { after, elapsedSince, instant, jittered, type Millis } from "../lock/time.ts";
import { hashOf } from "./codec.ts";

/** The most locks that one process watches. Runs that wait for others try again soon. */
const MOST_WATCHED = 100;

/** The pauses between two wakes for the same locks: the run that was woken needs some time to take them. */
const REST: Millis = 20;
const LONGEST_REST: Millis = 500;

/** The pause after a failure of the lock store. */
const RETRY: Millis = 1_000;

/** The wait of a run whose locks are watched: the process that watches them may die. */
const WATCHED_WAIT: Millis = 2_000;

/** The longest name of a lock in the journal. */
const LONGEST_NAME = 512;

/** A run that found its locks busy. */
interface Waiting {
  /** Names all of its locks in the journal. */
  readonly lock: string;

  /** How long the run is parked unless it is woken. */
  readonly wakeIn: Millis;

  /** Whether a lock was released since. */
  isReleased(): boolean;
}

/** The locks that parked runs of this process wait for. A worker wakes the runs when the locks are free. */
export class LockContention {
  readonly #journal: Journal;
  readonly #locks: LockStore | undefined;
  readonly #watchedWait: Millis;

  /** By the locks' name in the journal. */
  readonly #busy = new Map<string, BusyLocks>();
  #workers = 0;

  /** `watchedWait`: how long runs are parked whose locks are watched, give or take a half. */
  constructor(
    journal: Journal,
    locks: LockStore | undefined,
    watchedWait: Duration = WATCHED_WAIT,
  ) {
    this.#journal = journal;
    this.#locks = locks;
    this.#watchedWait = toMillis("lockPoll", watchedWait);
  }

  /** Watches the locks of runs that are parked from now on, for a worker, until the returned function is called. */
  watch(): () => void {
    this.#workers += 1;
    return () => {
      this.#workers -= 1;
      if (this.#workers === 0) for (const busy of this.#busy.values()) this.#forget(busy);
    };
  }

  /** Whether runs wait for one of the locks: another one would wait behind them. */
  hasWaiting(names: readonly string[]): boolean {
    return this.#including(names).length > 0;
  }

  /** Notes that a run will be parked for the locks: for `polledFor` unless they are watched. */
  busy(names: readonly string[], polledFor: Millis): Waiting {
    const lock = contentionName(names);
    const busy = this.#busy.get(lock) ?? this.#add(lock, names);
    const { isWatched, releases } = busy;
    const wakeIn = isWatched ? jittered(this.#watchedWait) : polledFor;
    // A run that is parked again is noted again.
    busy.keep(2 * wakeIn, () => this.#forget(busy));
    return { lock, wakeIn, isReleased: () => busy.releases !== releases };
  }

  /** Wakes the oldest run that waits for one of the released locks. Never rejects: the run also wakes by itself. */
  async released(names: readonly string[]): Promise<void> {
    await Promise.all(this.#including(names).map((busy) => this.#wake(busy)));
  }

  #including(names: readonly string[]): readonly BusyLocks[] {
    const all = [...this.#busy.values()];
    return all.filter((busy) => names.some((name) => busy.names.includes(name)));
  }

  #add(lock: string, names: readonly string[]): BusyLocks {
    const isWatched = this.#canWatch();
    const busy = new BusyLocks(lock, names, isWatched);
    this.#busy.set(lock, busy);
    if (isWatched) void this.#watch(busy);
    return busy;
  }

  #canWatch(): boolean {
    const isPossible = this.#workers > 0 && this.#locks?.whenFree !== undefined;
    const watched = [...this.#busy.values()].filter(({ isWatched }) => isWatched);
    return isPossible && watched.length < MOST_WATCHED;
  }

  #forget(busy: BusyLocks): void {
    busy.end();
    if (this.#busy.get(busy.lock) === busy) this.#busy.delete(busy.lock);
  }

  async #wake(busy: BusyLocks): Promise<void> {
    busy.releases += 1;
    const { releases } = busy;
    const isWaiting = await this.#journal.wakeWaiting(busy.lock).catch(() => true);
    if (!isWaiting && busy.releases === releases) this.#forget(busy);
  }

  /** Wakes a run whenever all of the locks are free, until no run waits for them. Never rejects. */
  async #watch(busy: BusyLocks): Promise<void> {
    const { signal, names } = busy;
    let rest = REST;
    while (!signal.aborted) {
      const startedAt = instant();
      try {
        for (const name of names) await this.#locks?.whenFree?.(name, signal);
        // The pauses grow while nobody takes the locks.
        rest = elapsedSince(startedAt) > rest ? REST : Math.min(2 * rest, LONGEST_REST);
        await this.#wake(busy);
        await sleep(rest, signal);
      } catch (error) {
        if (hasCode(error, "STORE_CLOSED")) return this.#forget(busy);
        await sleep(RETRY, signal).catch(() => {});
      }
    }
  }
}

/** Locks that a parked run needs together. */
class BusyLocks {
  readonly lock: string;
  readonly names: readonly string[];
  readonly isWatched: boolean;

  /** The number of releases since a run began to wait. */
  releases = 0;
  readonly #end = new AbortController();
  #cancel = () => {};

  constructor(lock: string, names: readonly string[], isWatched: boolean) {
    this.lock = lock;
    this.names = names;
    this.isWatched = isWatched;
  }

  /** Aborts when no run waits for the locks any more. */
  get signal(): AbortSignal {
    return this.#end.signal;
  }

  /** Calls `onOver` after the span, unless it is called again before. */
  keep(span: Millis, onOver: () => void): void {
    this.#cancel();
    this.#cancel = after(span, onOver, { idle: true });
  }

  end(): void {
    this.#cancel();
    this.#end.abort(new Error("no run waits for the locks"));
  }
}

/** Returns the name of a set of locks in the journal. A text that is too long is replaced by its hash. */
export function contentionName(names: readonly string[]): string {
  const [name] = names;
  if (name !== undefined && names.length === 1) return name;
  const lock = JSON.stringify(names.toSorted());
  return new TextEncoder().encode(lock).length > LONGEST_NAME ? hashOf(lock) : lock;
}
