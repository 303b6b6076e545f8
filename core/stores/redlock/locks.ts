import { checkWhole, LONGEST_SPAN } from "../../lock/checks.ts";
import { type Duration, toMillis } from "../../lock/duration.ts";
import { quote } from "../../lock/errors.ts";
import type { LockStore } from "../../lock/lock.ts";
import { pollingStore, type StoreOptions } from "../../lock/store.ts";
import { checkPrefix, PREFIX } from "../redis/client/names.ts";
import type { Redis } from "../redis/client/redis.ts";
import { RedlockClaims } from "./claims.ts";

export interface RedlockOptions extends StoreOptions {
  /** The prefix of all keys, in braces. Default "lockstep". */
  readonly prefix?: string;

  /**
   * The longest wait for one answer of a master; at most the ttl. Default 2,000.
   *
   * Once a quorum has answered, the wait for the others is at most 500 ms.
   */
  readonly masterTimeout?: Duration;
}

/**
 * Locks on independent Redis masters, usually five. A holder has the lock on more than half of them.
 *
 * Use it only where the resource checks the fence. A lock can be lost, and can then have two holders, when the clocks of
 * a majority are stepped forward, when masters of the lock restart without their last writes (anything but
 * `appendfsync always`) within one ttl, and when the rates of the masters' clocks differ by more than one percent. The
 * store works without a minority of its masters. A master that was down when a lock was taken does not count for it.
 *
 * Fences rise as long as any two quorums have a common master that remembers its tokens, whatever the clocks do. Where
 * masters lose their tokens (a restart without persistence), tokens are only guaranteed to be at least the master's
 * clock in whole seconds: raise the generation before such masters are used again.
 */
export function redlockLocks(
  masters: readonly Redis[],
  options: RedlockOptions & { readonly closeMasters?: boolean } = {},
): LockStore {
  const { prefix = PREFIX, masterTimeout = 2_000, closeMasters = false, ...rest } = options;
  checkPrefix(prefix);
  const timeout = toMillis("masterTimeout", masterTimeout, 1, LONGEST_SPAN);
  checkWhole("number of masters", masters.length, 1, 99);
  checkDistinct(masters.map(({ address }) => address));
  const claims = new RedlockClaims(masters, { prefix, timeout, closeMasters });
  return pollingStore(claims, rest);
}

/** A master that is named twice would have two votes. Host names have no case. */
function checkDistinct(addresses: readonly string[]): void {
  const all = addresses.map((address) => address.toLowerCase());
  const twice = all.find((address, i) => all.indexOf(address) !== i);
  if (twice !== undefined) throw new RangeError(`the master ${quote(twice)} is named twice`);
}
