import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";

/** Random numbers that the seeds determine. Streams of different seeds are independent. */
export class Random {
  readonly #generator;

  constructor(...seeds: readonly number[]) {
    this.#generator = xoroshiro128plus(seeds.reduce(mix, 0));
  }

  /** Returns a number from 0 to less than 1. */
  float(): number {
    return this.uint32() / 2 ** 32;
  }

  uint32(): number {
    return this.#generator.next() >>> 0;
  }

  /** Returns a whole number from 0 to less than `limit`. */
  below(limit: number): number {
    return Math.floor(this.float() * limit);
  }

  between(low: number, high: number): number {
    return low + this.float() * (high - low);
  }

  chance(share: number): boolean {
    return this.float() < share;
  }

  pick<T>(all: readonly T[]): T {
    return all[this.below(all.length)] as T;
  }
}

/** One round of MurmurHash3 and its finalizer: similar seeds give unrelated streams. */
function mix(hash: number, seed: number): number {
  let mixed = Math.imul(hash ^ seed, 0x85ebca6b) + 0x9e3779b9;
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
