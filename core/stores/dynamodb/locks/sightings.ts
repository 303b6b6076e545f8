import { RecentMap } from "../../../lock/recent-map.ts";
import type { Millis } from "../../../lock/time.ts";
import type { Item } from "../client/items.ts";

/** A lock as it was seen. After somebody has deleted the item, another owner may have the same version. */
export interface Standstill {
  readonly owner: string;
  readonly version: string;
}

interface Sighting extends Standstill {
  /** When this client first had an answer with this version, by its monotonic clock. */
  readonly since: number;
  readonly ttl: Millis;
  readonly delay: Millis;
}

/** How much longer a holder has its lock as far as this client has seen; 0 or less: the lock has expired. */
export interface TimeLeft {
  readonly expiresIn: Millis;

  /** With the lock's delay. */
  readonly freeIn: Millis;
}

/**
 * When this client first saw the present version of each held lock.
 *
 * The version changes with each renewal. A version that has stood still for one ttl of this client's monotonic clock has
 * expired: its holder sent the renewal before this client saw it, and counts from then on. No wall clock is compared.
 */
export class Sightings {
  readonly #seen = new RecentMap<Sighting>();

  /** Notes the lock as it was just read. Resolves to undefined for a free lock. */
  see(name: string, item: Item | undefined): TimeLeft | undefined {
    if (item?.owner === undefined) {
      this.#seen.delete(name);
      return undefined;
    }
    const { owner, version = "", ttl, delay } = item;
    const seen = this.#seen.get(name);
    if (seen?.version !== version || seen.owner !== owner) {
      const since = performance.now();
      this.#seen.set(name, { owner, version, since, ttl: Number(ttl), delay: Number(delay) });
    }
    return this.#left(name);
  }

  /** Returns the version that has expired, lockDelay included, and its owner. */
  expired(name: string): Standstill | undefined {
    const left = this.#left(name);
    const seen = this.#seen.get(name);
    if (!seen || !left || left.freeIn > 0) return undefined;
    return { owner: seen.owner, version: seen.version };
  }

  #left(name: string): TimeLeft | undefined {
    const seen = this.#seen.get(name);
    if (seen === undefined) return undefined;
    const expiresIn = seen.since + seen.ttl - performance.now();
    return { expiresIn, freeIn: expiresIn + seen.delay };
  }
}
