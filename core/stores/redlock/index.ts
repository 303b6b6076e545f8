/** Locks on a majority of independent Redis masters. */

import { cannotOpen } from "../../lock/checks.ts";
import { type OpenStore, openLockStore } from "../../lock/open-store.ts";
import { checkOptionNames, type OptionNames } from "../../lock/options.ts";
import { STORE_OPTIONS } from "../options.ts";
import type { IoredisClient } from "../redis/client/ioredis.ts";
import { PREFIX } from "../redis/client/names.ts";
import type { NodeRedisClient } from "../redis/client/node-redis.ts";
import { redisOpener } from "../redis/client/open.ts";
import type { RedisOptions } from "../redis/client/redis.ts";
import { type RedlockOptions, redlockLocks } from "./locks.ts";

const REDLOCK_OPTIONS = {
  ...STORE_OPTIONS,
  prefix: true,
  masterTimeout: true,
} satisfies OptionNames<RedlockOptions>;

/**
 * Opens independent Redis masters, usually five. Connects on first use.
 *
 *     const hosts = ["redis-1", "redis-2", "redis-3"];
 *     await using store = await openRedlock(hosts.map((host) => ({ host })));
 *
 * A client of the package ioredis or redis in place of a master's options gives its settings. Options need the package
 * ioredis: rejects with a TypeError when it is not installed.
 */
export async function openRedlock(
  masters: readonly (RedisOptions | IoredisClient | NodeRedisClient)[],
  options: RedlockOptions = {},
): Promise<OpenStore> {
  if (!Array.isArray(masters)) {
    throw cannotOpen("openRedlock", masters, 'a list such as [{ host: "redis-1" }]');
  }
  checkOptionNames("openRedlock", options, REDLOCK_OPTIONS);
  const opened = await Promise.all(masters.map((master) => redisOpener(master, "openRedlock")));
  const clients = opened.map((open) => open(options.prefix ?? PREFIX));
  return openLockStore({ locks: redlockLocks(clients, { ...options, closeMasters: true }) });
}
