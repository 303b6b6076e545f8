import { checkWhole } from "../../core/lock/checks.ts";
import { tooMany } from "./problem.ts";

export interface Limits {
  /** How many requests may be under way in this process. Default 1,000. */
  readonly requests?: number;

  /** How many of them for the same sku, or for runs of the same workflow. Default 200. */
  readonly perKey?: number;
}

/** Refuses what would only wait: a client that is told so comes back later, and holds nothing meanwhile. */
export class Admission {
  readonly #requests: number;
  readonly #perKey: number;
  readonly #underWay = new Map<string, number>();
  #all = 0;

  constructor({ requests = 1_000, perKey = 200 }: Limits = {}) {
    checkWhole("limits.requests", requests, 1, 1_000_000);
    checkWhole("limits.perKey", perKey, 1, 1_000_000);
    this.#requests = requests;
    this.#perKey = perKey;
  }

  /** Counts the request until disposed. Throws a Problem when there is no room. */
  enter(key: string): Disposable {
    const ofKey = this.#underWay.get(key) ?? 0;
    if (this.#all >= this.#requests) throw tooMany("this server");
    if (ofKey >= this.#perKey) throw tooMany("the same thing");
    this.#all += 1;
    this.#underWay.set(key, ofKey + 1);
    return { [Symbol.dispose]: () => this.#leave(key) };
  }

  #leave(key: string): void {
    this.#all -= 1;
    const left = (this.#underWay.get(key) ?? 1) - 1;
    if (left === 0) this.#underWay.delete(key);
    else this.#underWay.set(key, left);
  }
}
