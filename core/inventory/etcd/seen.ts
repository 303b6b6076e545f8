import type { KeyValue } from "../../etcd/etcd.ts";

export type Sight = Pick<KeyValue, "key" | "value" | "modRevision">;

/** How many keys are remembered. */
const MOST = 10_000;

/** How keys were when they were last seen: a guess that is worth a try, and no more. */
export class Seen {
  /** The one seen last is the last. */
  readonly #sights = new Map<string, Sight>();

  get(key: string): Sight | undefined {
    return this.#sights.get(key);
  }

  keep({ key, value, modRevision }: Sight): void {
    this.#sights.delete(key);
    this.#sights.set(key, { key, value, modRevision });
    const [oldest] = this.#sights.keys();
    if (this.#sights.size > MOST && oldest !== undefined) this.#sights.delete(oldest);
  }
}
