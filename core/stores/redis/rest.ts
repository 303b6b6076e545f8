import { checkOptionNames, type OptionNames } from "../../lock/options.ts";
import { STORE_OPTIONS } from "../options.ts";
import { type RedisRestOptions, redisRestClient } from "./client/rest.ts";
import { type RedisStore, type RedisStoreOptions, redisStore } from "./store.ts";

type RestOptions = Omit<RedisStoreOptions, "replicas" | "replicaTimeout">;

const REST_OPTIONS = { ...STORE_OPTIONS, prefix: true } satisfies OptionNames<RestOptions>;

/**
 * Opens a Redis over HTTP, by Upstash's REST API. Needs nothing but `fetch`.
 *
 *     await using shop = await openRedisRest({ url: "https://eu1-teapot.upstash.io", token: "…" });
 *
 * There are no subscriptions over HTTP: waiters poll.
 */
export async function openRedisRest(
  connection: RedisRestOptions,
  options: RestOptions = {},
): Promise<RedisStore> {
  checkOptionNames("openRedisRest", options, REST_OPTIONS);
  return redisStore(redisRestClient(connection), options);
}
