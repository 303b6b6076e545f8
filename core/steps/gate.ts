import { Breakdown, Suspension } from "./halt.ts";

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
    if (ended) {
      void this.#haltIfQuiet();
      return ended.value();
    }
    void this.#haltIfQuiet();
    return new Promise<never>(() => {});
  }

  /** Ends what is under way, and begins nothing more. */
  close(reason: Suspension | Breakdown): void {
    this.#stop.abort(reason);
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
      if (error instanceof Suspension) this.#suspensions.push(error);
      else if (error instanceof Breakdown) this.#breakdown ??= error;
      else {
        const rethrow = () => {
          throw error;
        };
        return { value: rethrow };
      }
      return undefined;
    }
  }

  /** Others may have something to do still: they get some turns of the queue to ask for it. */
  async #haltIfQuiet(): Promise<void> {
    if (this.#breakdown) return this.#halted.resolve(undefined);
    if (this.#working > 0 || this.#suspensions.length === 0) return;
    const calls = this.#calls;
    for (let turn = 0; turn < TURNS; turn += 1) await undefined;
    if (this.#working === 0 && this.#calls === calls) this.#halted.resolve(undefined);
  }
}

const TURNS = 1_000;
