import { link } from "./abort.ts";
import { releaseUntilKnown } from "./attempts.ts";
import { LockReleasedError } from "./errors.ts";
import type { Unlocked } from "./lock.ts";
import type { QueueEntry } from "./session-queue.ts";
import type { Millis } from "./time.ts";

export interface LeadershipOptions {
  /** The session that the queue entry is attached to. */
  readonly session: {
    readonly ttl: Millis;
    readonly signal: AbortSignal;
    remaining(): Millis;
  };

  /** The address of the store, for errors. */
  readonly store: string;

  /** The name of the queue, for errors. */
  readonly name: string;
}

/** The first place in a queue, held by a mutex or a leader on its session: an entry, and a signal that aborts when the entry is lost. */
export class Leadership<E extends QueueEntry> {
  readonly #options: LeadershipOptions;

  /** The reason of every signal that ends with `giveUp`: creating an error with its stack each time is slow. */
  readonly #givenUp: LockReleasedError;
  #entry: E | undefined;
  #controller = new AbortController();
  #stopFollowing = () => {};
  #givingUp: Promise<Unlocked> | undefined;

  /** Creates a leadership that has not begun. */
  constructor(options: LeadershipOptions) {
    this.#options = options;
    this.#givenUp = this.released();
    this.#end();
  }

  /** Aborts when the leadership ends; aborted before it has begun. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The queue entry, until it is given up or forgotten. A lost leadership keeps it. */
  get entry(): E | undefined {
    return this.#entry;
  }

  /** Begins. The leadership ends with the session, with the entry, or when it is given up. */
  begin(entry: E): void {
    this.#stopFollowing();
    const controller = new AbortController();
    const unlink = link([this.#options.session.signal], controller);
    const stopGuard = entry.guard((loss) => controller.abort(loss));
    this.#entry = entry;
    this.#controller = controller;
    this.#stopFollowing = () => {
      stopGuard();
      unlink();
    };
  }

  /**
   * Ends the leadership, and leaves the queue unless `handOver` passes the entry on. Resolves to `was-lost` when there
   * was no entry, or it was no longer ours. Rejects with an UnknownOutcomeError when the store does not answer; then it
   * may be called again.
   */
  giveUp(handOver: (entry: E) => boolean = () => false): Promise<Unlocked> {
    this.#givingUp ??= this.#giveUp(handOver).finally(() => {
      this.#givingUp = undefined;
    });
    return this.#givingUp;
  }

  /** Resolves when no entry is being given up: a new request could adopt that entry otherwise. */
  async settled(): Promise<void> {
    await this.#givingUp?.catch(() => {});
  }

  /** Ends the leadership without leaving the queue: the entry is lost, or was passed on. */
  forget(): void {
    this.#end();
    this.#entry = undefined;
  }

  /** Leaves the queue with an entry that did not begin a leadership, as far as the store can be reached. Never rejects. */
  async decline(entry: E): Promise<void> {
    await this.#leave(entry, 0).catch(() => {});
  }

  /** Creates the error for callers that need a leadership where there is none. */
  released(): LockReleasedError {
    return new LockReleasedError(this.#options.name);
  }

  async #giveUp(handOver: (entry: E) => boolean): Promise<Unlocked> {
    const entry = this.#entry;
    if (!entry) return "was-lost";
    const remaining = this.signal.aborted ? 0 : this.#options.session.remaining();
    // The guard would take the end of the entry for a loss.
    this.#end();
    const wasOurs = (remaining > 0 && handOver(entry)) || (await this.#leave(entry, remaining));
    this.#entry = undefined;
    return wasOurs ? "released" : "was-lost";
  }

  #end(): void {
    this.#stopFollowing();
    this.#controller.abort(this.#givenUp);
  }

  /** Leaves the queue, where the entry is certainly ours for `remaining` milliseconds. */
  #leave(entry: E, remaining: Millis): Promise<boolean> {
    const { session, store, name } = this.#options;
    const drop = (limit: AbortSignal) => entry.leave(limit);
    return releaseUntilKnown({ drop, store, names: [name], ttl: session.ttl, remaining });
  }
}
