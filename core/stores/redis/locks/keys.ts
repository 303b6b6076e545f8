import { holderIdOf } from "../../../lock/holder.ts";
import { keyOf, ownKey } from "../client/names.ts";

/** The keys and channels of one client's locks. */
export class LockKeys {
  readonly #prefix: string;
  readonly #client = crypto.randomUUID();
  readonly generation: string;

  /** The common prefix of the channels of all clients. */
  readonly channels: string;

  constructor(prefix: string) {
    this.#prefix = prefix;
    this.generation = ownKey(prefix, "generation");
    this.channels = keyOf(prefix, "wake", "");
  }

  /** Returns the keys of the first kind for all names, then those of the next kind. */
  of(names: readonly string[], ...kinds: readonly string[]): string[] {
    const keys: string[] = [];
    for (const kind of kinds) {
      for (const name of names) keys.push(keyOf(this.#prefix, kind, name));
    }
    return keys;
  }

  /** The channel of this client's waiters. */
  get channel(): string {
    return this.channels + this.#client;
  }

  /** Returns the id of a waiter, which names the client first. */
  waiter(owner: string): string {
    return `${this.#client}/${holderIdOf(owner)}`;
  }
}

/** Returns the holder's id in the id of a waiter. */
export function holderIdIn(waiter: string): string {
  return waiter.slice(waiter.indexOf("/") + 1);
}
