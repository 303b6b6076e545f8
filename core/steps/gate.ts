import { sleep } from "../lock/abort.ts";
import type { Millis } from "../lock/time.ts";
import { Breakdown, Suspension } from "./halt.ts";
import { turns } from "./turns.ts";

/**
 * Everything new that a workflow does goes through here.
 *
 * When a step is to be waited for longer than is worth a process, its promise just never settles; the others go
 * on, and once nobody can, the gate halts.
 */
export class Gate {
  readonly #stop = new AbortController();
  readonly #halted = Promise.withResolvers<undefined>();
  readonly #suspensions: Suspension[] = [];
  #breakdown: Breakdown | undefined;
  #working = 0;
  #calls = 0;
  #isWatched = false;
  #onIdle = () => {};

  /** Aborts with a Suspension or a Breakdown. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Resolves when nothing can go on. */
  get halted(): Promise<undefined> {
    return this.#halted.promise;
  }

  /** The suspension that ends first. */
  get suspension(): Suspension {
    const [first = new Suspension("deadline", 0), ...rest] = this.#suspensions;
    return rest.reduce((a, b) => (b.wakeIn < a.wakeIn ? b : a), first);
  }

  /** The workflow has asked for something, new or not. */
  called(): void {
    this.#calls += 1;
  }

  /** Does what is new. Never settles when the run is let go of meanwhile. */
  async pass<T>(work: () => Promise<T>): Promise<T> {
    this.#working += 1;
    const ended = await this.#outcome(work);
    this.#working -= 1;
    this.#onIdle();
    void this.#haltWhenQuiet();
    return ended ? ended.value() : new Promise<never>(() => {});
  }

  /** Lets go of the run: ends what is under way, begins nothing more, and halts. */
  letGo(reason: Suspension | Breakdown): void {
    if (this.signal.aborted) return;
    this.#note(reason);
    this.#stop.abort(reason);
    void this.#haltWhenQuiet();
  }

  /** Ends what is under way, and begins nothing more: it is not needed. */
  close(): void {
    this.#stop.abort(new Suspension("deadline", 0));
  }

  /** Resolves when nothing is under way. Rejects with what has broken down. */
  async idle(): Promise<void> {
    while (this.#working > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    }
    if (this.#breakdown) throw this.#breakdown.error;
  }

  /** Undefined: the run is to be let go of. */
  async #outcome<T>(work: () => Promise<T>): Promise<{ value(): T } | undefined> {
    try {
      this.signal.throwIfAborted();
      const value = await work();
      return { value: () => value };
    } catch (error) {
      if (error instanceof Suspension || error instanceof Breakdown) return this.#note(error);
      const rethrow = () => {
        throw error;
      };
      return { value: rethrow };
    }
  }

  #note(reason: Suspension | Breakdown): undefined {
    if (reason instanceof Suspension) this.#suspensions.push(reason);
    else this.#breakdown ??= reason;
  }

  /** Others may have something to do still: they get some time to ask for it. */
  async #haltWhenQuiet(): Promise<void> {
    if (this.#breakdown) return this.#halted.resolve(undefined);
    if (this.#isWatched || this.#suspensions.length === 0) return;
    this.#isWatched = true;
    while (this.#working === 0 && !(await this.#isQuiet()));
    this.#isWatched = false;
    if (this.#working === 0) this.#halted.resolve(undefined);
  }

  /** Branches that await something of their own besides get a moment, once the run is to be parked for longer. */
  async #isQuiet(): Promise<boolean> {
    const calls = this.#calls;
    await turns(TURNS);
    const isNew = () => this.#working > 0 || this.#calls !== calls;
    const nap = Math.min(MOMENT, this.suspension.wakeIn / 10) / NAPS;
    // Not one nap: each of them is a round of the event loop, however busy that is.
    for (let i = 0; !isNew() && nap > 0 && i < NAPS; i += 1) {
      await sleep(nap, this.signal).catch(() => {});
    }
    return !isNew();
  }
}

const TURNS = 1_000;

/** Enough for a hash or a module, and little beside a wait of any length. */
const MOMENT: Millis = 20;
const NAPS = 10;
