import type { Claims } from "../../../lock/claims.ts";
import type { Duration } from "../../../lock/duration.ts";
import type { LockStore } from "../../../lock/lock.ts";
import { pollingStore, type StoreOptions } from "../../../lock/store.ts";
import { checkPrefix, PREFIX } from "../client/names.ts";
import type { Redis } from "../client/redis.ts";
import { replicatedWrites } from "../client/replicas.ts";
import { RedisClaims } from "./claims.ts";
import { NotifiedClaims } from "./notified-claims.ts";

export interface RedisLocksOptions extends StoreOptions {
  /**
   * The prefix of all keys, in braces. Default "lockstep".
   *
   * In a cluster all keys with one prefix are in one slot, and so on one master.
   */
  readonly prefix?: string;

  /**
   * How many replicas must confirm a lock in time, at each claim and each renewal. A claim without the confirmations is
   * withdrawn, and rejects with a StoreUnavailableError. Default 0.
   *
   * Makes the loss of a lock in a failover less likely, and does not rule it out: a replica without the lock may be
   * promoted all the same. While the client waits for replicas, its other commands wait, too.
   */
  readonly replicas?: number;

  /** How long to wait for the replicas; at most half the client's timeout. Default 1,000. */
  readonly replicaTimeout?: Duration;
}

/**
 * Locks in Redis 7 or later: `{PREFIX}lock:NAME` is the owner for as long as the lock is held, as by SET NX PX, and
 * `{PREFIX}fence:NAME` is the last token, for ever.
 *
 * A lock can be lost, and can then have two holders: when the server restarts without the last writes (only
 * `appendfsync always` keeps them all), when a replica without them is promoted, when memory is short and the policy
 * evicts keys that expire, and when the server's clock is stepped forward. The later holder's fence is still above the
 * earlier one's, unless the clock of the new server is behind as well: tokens are at least that clock in microseconds.
 * A server that has lost its data gets the generation back from each client that has seen it; for new clients an
 * operator raises it (`raiseGeneration(least)`). Where two writes must not overlap, let the resource check the fence.
 */
export function redisLocks(
  redis: Redis,
  options: RedisLocksOptions & { readonly closeRedis?: boolean } = {},
): LockStore {
  return pollingStore(redisClaims(redis, options), options);
}

export function redisClaims(
  redis: Redis,
  options: RedisLocksOptions & { readonly closeRedis?: boolean },
): Claims {
  const { prefix = PREFIX, closeRedis = false } = options;
  checkPrefix(prefix);
  const claims = { prefix, replicated: replicatedWrites(redis, options), closeRedis };
  return canSubscribe(redis) ? new NotifiedClaims(redis, claims) : new RedisClaims(redis, claims);
}

function canSubscribe(redis: Redis): redis is Required<Redis> {
  return redis.subscribe !== undefined;
}
