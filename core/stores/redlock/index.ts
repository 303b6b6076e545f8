import { checkSpan, checkWhole } from "../../lock/checks.ts";
import { quote } from "../../lock/errors.ts";
import type { LockStore } from "../../lock/lock.ts";
import { pollingStore, type StoreOptions } from "../../lock/store.ts";
import type { Millis } from "../../lock/time.ts";
import { checkPrefix, PREFIX } from "../../redis/names.ts";
import type { Redis } from "../../redis/redis.ts";
import { RedlockClaims } from "./claims.ts";

export { openRedis } from "../../redis/ioredis.ts";
export type { Redis, RedisOptions, RedisTls } from "../../redis/redis.ts";

export interface RedlockStoreOptions extends StoreOptions {
  /** Stands before all keys, in braces. Default "lockstep". */
  readonly prefix?: string;

  /**
   * How long a master has for one answer, in milliseconds, and never longer than the ttl. Default 5,000.
   *
   * 500, once a quorum has answered and the rest could still change the outcome.
   */
  readonly masterTimeout?: Millis;

  /** Close the masters' clients together with the store. Default false: who opened them closes them. */
  readonly closeMasters?: boolean;
}

/**
 * Locks on independent Redis masters, usually five: held by whoever has more than half of them.
 *
 * Use it only where the resource checks the fence. A lock can be lost, and two can then hold it, when the clocks of a
 * majority are stepped forward, when masters that had it restart without their last writes (anything but
 * `appendfsync always`) sooner than one ttl later, and when the masters' clocks run at rates that differ by more than
 * one percent. It goes on without a minority; of a master that was away when a lock was taken, that lock has nothing.
 *
 * Fences rise as long as of any two quorums one common master remembers what it counted, whatever the clocks do. Where
 * masters forget even that (a restart without persistence, at any time), what is left is that no master's token is
 * below its own clock, in whole seconds: raise the generation before such masters are used again.
 */
export function redlockStore(
  masters: readonly Redis[],
  options: RedlockStoreOptions = {},
): LockStore {
  const { prefix = PREFIX, masterTimeout = 5_000, closeMasters = false, ...rest } = options;
  checkPrefix(prefix);
  checkSpan("masterTimeout", masterTimeout, 1);
  checkWhole("number of masters", masters.length, 1, 99);
  checkDistinct(masters.map(({ address }) => address));
  const claims = new RedlockClaims(masters, { prefix, timeout: masterTimeout, closeMasters });
  return pollingStore(claims, rest);
}

/** A server that is asked twice would have two votes. */
function checkDistinct(addresses: readonly string[]): void {
  const twice = addresses.find((address, i) => addresses.indexOf(address) !== i);
  if (twice !== undefined) throw new RangeError(`the master ${quote(twice)} is named twice`);
}
