/** Lets whatever can go on at once do so: some turns of the queue of promises. */
export async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await undefined;
}

/** How many turns the workflow's code gets between two answers. */
const BETWEEN = 100;

/** The time between two answers. */
export function between(): Promise<void> {
  return turns(BETWEEN);
}

interface Place {
  /** When the answer before has been given, and the code has run as far as it could. */
  readonly turn: Promise<void>;
  leave(): void;
}

/**
 * Gives answers to the workflow's code in the order in which they were written, one at a time: just as it will have
 * them when it is replayed. Otherwise a race between branches might go the other way then.
 */
export class AnswerLine {
  readonly #places = new Map<string, Place>();
  #last: Promise<void> = Promise.resolve();

  /** To be called as soon as the answer is written. */
  enter(key: string): void {
    if (this.#places.has(key)) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#places.set(key, { turn: this.#last, leave: resolve });
    this.#last = promise;
  }

  /** Resolves when it is the turn of this answer; at once where there is none. */
  async turnOf(key: string): Promise<void> {
    const place = this.#places.get(key);
    if (!place) return;
    this.#places.delete(key);
    await place.turn;
    void between().then(place.leave);
  }
}
