import { link } from "./abort.ts";
import { giveBack } from "./answers.ts";
import { LockReleasedError } from "./errors.ts";
import type { Unlocked } from "./lock.ts";
import type { Millis } from "./time.ts";

interface Terms {
  /** What hangs on it is lost with it. */
  readonly session: {
    readonly ttl: Millis;
    readonly signal: AbortSignal;
    remaining(): Millis;
  };

  /** Its address. */
  readonly store: string;

  /** What there is a line for. */
  readonly name: string;
}

/** A place at the head of a line, that may be lost. */
interface Place {
  /** Calls back when it is lost, until the returned function is called. */
  guard(onGone: (loss: Error) => void): () => void;

  /** One owner-checked removal. False: it was not ours any more. */
  leave(limit: AbortSignal): Promise<boolean>;
}

/** What a mutex or a leader has on its session: a place, and a signal for as long as it is ours. */
export class Tenure<P extends Place> {
  readonly #terms: Terms;

  /** What the signal aborts with each time: the stack of an error takes its time. */
  readonly #givenUp: LockReleasedError;
  #place: P | undefined;
  #controller = new AbortController();
  #stop = () => {};
  #givingUp: Promise<Unlocked> | undefined;

  /** One that has not begun. */
  constructor(terms: Terms) {
    this.#terms = terms;
    this.#givenUp = this.released();
    this.#end();
  }

  /** Aborts when the tenure ends; aborted before it has begun. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Until it is given up or forgotten, also when it is lost. */
  get place(): P | undefined {
    return this.#place;
  }

  /** It ends with the session, with the place, or when it is given up. */
  begin(place: P): void {
    this.#stop();
    const controller = new AbortController();
    const unlink = link([this.#terms.session.signal], controller);
    const stopGuard = place.guard((loss) => controller.abort(loss));
    this.#place = place;
    this.#controller = controller;
    this.#stop = () => {
      stopGuard();
      unlink();
    };
  }

  /**
   * Ends it, and leaves the place unless `handOver` finds somebody for it. `was-lost`: there was none, or it was
   * no longer ours. Rejects with an UnknownOutcomeError when the store does not answer; then it may be called again.
   */
  giveUp(handOver: (place: P) => boolean = () => false): Promise<Unlocked> {
    this.#givingUp ??= this.#giveUp(handOver).finally(() => {
      this.#givingUp = undefined;
    });
    return this.#givingUp;
  }

  /** Resolves when no place is being given up: who enters before could find that one, and take it for its own. */
  async settled(): Promise<void> {
    await this.#givingUp?.catch(() => {});
  }

  /** The place is no longer ours, or somebody else's matter. */
  forget(): void {
    this.#end();
    this.#place = undefined;
  }

  /** Leaves a place that was not taken up, as far as the store can be reached. Never rejects. */
  async decline(place: P): Promise<void> {
    await this.#leave(place, 0).catch(() => {});
  }

  /** What those are told who need a tenure where there is none. */
  released(): LockReleasedError {
    return new LockReleasedError(this.#terms.name);
  }

  async #giveUp(handOver: (place: P) => boolean): Promise<Unlocked> {
    const place = this.#place;
    if (!place) return "was-lost";
    const ours = this.signal.aborted ? 0 : this.#terms.session.remaining();
    // Before the place is left, whose end would look like a loss.
    this.#end();
    const left = (ours > 0 && handOver(place)) || (await this.#leave(place, ours));
    this.#place = undefined;
    return left ? "released" : "was-lost";
  }

  #end(): void {
    this.#stop();
    this.#controller.abort(this.#givenUp);
  }

  /** Leaves a place that is ours for `ours` milliseconds more. */
  #leave(place: P, ours: Millis): Promise<boolean> {
    const { session, store, name } = this.#terms;
    const drop = (limit: AbortSignal) => place.leave(limit);
    return giveBack({ drop, store, names: [name], ttl: session.ttl, ours });
  }
}
