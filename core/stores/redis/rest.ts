import { type RedisRestOptions, redisRestClient } from "./client/rest.ts";
import { type RedisStore, type RedisStoreOptions, redisStore } from "./store.ts";

/**
 * Opens a Redis over HTTP, by Upstash's REST API. Needs nothing but `fetch`.
 *
 *     await using shop = await openRedisRest({ url: "https://eu1-teapot.upstash.io", token: "…" });
 *
 * There are no subscriptions over HTTP: waiters poll.
 */
export async function openRedisRest(
  connection: RedisRestOptions,
  options: Omit<RedisStoreOptions, "replicas" | "replicaTimeout"> = {},
): Promise<RedisStore> {
  return redisStore(redisRestClient(connection), options);
}
