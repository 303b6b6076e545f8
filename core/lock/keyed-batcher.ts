interface Pending<T, R> {
  readonly item: T;
  resolve(result: R): void;
  reject(error: unknown): void;
}

/**
 * Groups concurrent calls with one key, which would wait for each other anyway. Calls that arrive while a group is under
 * way share the next one: a busy key is served in groups, a quiet one without delay.
 */
export class KeyedBatcher<T, R> {
  readonly #most: number;
  readonly #apply: (group: readonly T[]) => Promise<readonly R[]>;

  /** A queue, possibly empty, exists while a group is under way. */
  readonly #queues = new Map<string, Pending<T, R>[]>();

  /** `apply` resolves to the results of at most `most` items, in their order. */
  constructor(most: number, apply: (group: readonly T[]) => Promise<readonly R[]>) {
    this.#most = most;
    this.#apply = apply;
  }

  /** Whether no group is under way, and no call waits for one. */
  get isIdle(): boolean {
    return this.#queues.size === 0;
  }

  add(key: string, item: T): Promise<R> {
    const { promise, ...settle } = Promise.withResolvers<R>();
    const pending = { item, ...settle };
    const queue = this.#queues.get(key);
    if (queue) queue.push(pending);
    else void this.#drain(key, pending);
    return promise;
  }

  /** Takes the item out of the queue: its promise never settles. Returns false if the item is under way. */
  remove(key: string, item: T): boolean {
    const queue = this.#queues.get(key);
    const at = queue?.findIndex((pending) => pending.item === item) ?? -1;
    if (at >= 0) queue?.splice(at, 1);
    return at >= 0;
  }

  async #drain(key: string, first: Pending<T, R>): Promise<void> {
    const queue = [first];
    this.#queues.set(key, queue);
    while (queue.length > 0) await this.#settle(queue.splice(0, this.#most));
    this.#queues.delete(key);
  }

  async #settle(group: readonly Pending<T, R>[]): Promise<void> {
    try {
      const results = await this.#apply(group.map(({ item }) => item));
      for (const [i, { resolve }] of group.entries()) resolve(results[i] as R);
    } catch (error) {
      for (const { reject } of group) reject(error);
    }
  }
}
