import { checkSpan, checkWhole } from "../../lock/checks.ts";
import type { LockStore } from "../../lock/lock.ts";
import { pollingStore, type StoreOptions } from "../../lock/store.ts";
import type { Millis } from "../../lock/time.ts";
import { checkPrefix, PREFIX } from "../../redis/names.ts";
import type { Redis } from "../../redis/redis.ts";
import { RedisClaims } from "./claims.ts";

export { openRedis } from "../../redis/ioredis.ts";
export {
  type Argument,
  type CallOptions,
  type Command,
  type Input,
  type Redis,
  type RedisOptions,
  type RedisTls,
  type Replicas,
  type Reply,
  type Script,
  type Subscriber,
  script,
} from "../../redis/redis.ts";

export interface RedisStoreOptions extends StoreOptions {
  /**
   * Stands before all keys, in braces. Default "lockstep".
   *
   * On a cluster all locks with one prefix are on one shard, which is the one to connect to.
   */
  readonly prefix?: string;

  /**
   * How many replicas must have said in time that they have a lock, when it is taken and whenever it is renewed.
   * Otherwise it is given back and a StoreUnavailableError. Default 0.
   *
   * It makes a lock that is lost in a failover less likely, and does not rule it out: a replica that has not said so
   * may be promoted all the same. While replicas are waited for, everything else that this client asks for waits.
   */
  readonly replicas?: number;

  /** How long to wait for the replicas, in milliseconds, but no longer than half the client's timeout. Default 1,000. */
  readonly replicaTimeout?: Millis;

  /** Close the client together with the store. Default false: who opened it closes it. */
  readonly closeRedis?: boolean;
}

/**
 * Locks in Redis 7 or later: `{PREFIX}lock:NAME` is the owner for as long as the lock is held, as by SET NX PX, and
 * `{PREFIX}fence:NAME` is the last token, for ever.
 *
 * A lock can be lost, and two can then hold it: when the server restarts without the last writes (only
 * `appendfsync always` has them all), when a replica is promoted that lacks them, when memory is short and the
 * policy evicts keys that expire, and when the server's clock is stepped forward. The later holder's fence is above
 * the earlier one's all the same, unless the clock of the server that gives it is behind as well: tokens are no less
 * than that clock in microseconds. For writes that must not meet, have the resource check the fence.
 */
export function redisStore(redis: Redis, options: RedisStoreOptions = {}): LockStore {
  const { prefix = PREFIX, replicas = 0, replicaTimeout = 1_000, ...rest } = options;
  const { closeRedis = false, ...storeOptions } = rest;
  checkPrefix(prefix);
  checkWhole("replicas", replicas, 0, 1_000);
  checkSpan("replicaTimeout", replicaTimeout, 1);
  const awaited = replicas > 0 ? { count: replicas, span: replicaTimeout } : undefined;
  return pollingStore(
    new RedisClaims(redis, { prefix, replicas: awaited, closeRedis }),
    storeOptions,
  );
}
