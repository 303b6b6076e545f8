import { checkOpening, checkText, checkWhole, LONGEST_SPAN } from "../../../lock/checks.ts";
import { toMillis } from "../../../lock/duration.ts";
import { checkOptionNames, type OptionNames } from "../../../lock/options.ts";
import { checkTlsOptions } from "../../pem.ts";
import { routeToServer, toAddress, toAddresses } from "./addresses.ts";
import { redisOver } from "./client.ts";
import { ClusterRoute } from "./cluster.ts";
import type { Route, RouteOptions } from "./connection.ts";
import { dialIoredis, type IoredisClient, routeLikeIoredis } from "./ioredis.ts";
import { loadIoredis } from "./load-ioredis.ts";
import { ownKey, PREFIX } from "./names.ts";
import { type NodeRedisClient, routeLikeNodeRedis } from "./node-redis.ts";
import type { Redis, RedisClusterOptions, RedisOptions, RedisSentinelOptions } from "./redis.ts";
import { SentinelRoute } from "./sentinel.ts";

/** Where Redis is: options, or a client of the user that has them. */
export type RedisSource =
  | RedisOptions
  | RedisClusterOptions
  | RedisSentinelOptions
  | IoredisClient
  | NodeRedisClient;

/** Those of a server, a cluster and sentinels. */
const CONNECTION_OPTIONS = {
  host: true,
  port: true,
  user: true,
  password: true,
  database: true,
  tls: true,
  timeout: true,
  cluster: true,
  sentinels: true,
  master: true,
  sentinelLogin: true,
} satisfies OptionNames<RedisOptions & RedisClusterOptions & RedisSentinelOptions>;

const SENTINEL_LOGIN = { user: true, password: true, tls: true } satisfies OptionNames<
  NonNullable<RedisSentinelOptions["sentinelLogin"]>
>;

/** What the options name: only one of these is possible. */
const WAYS = {
  host: "a server (host)",
  cluster: "a cluster",
  sentinels: "sentinels",
  master: "sentinels",
} as const;

type Way = keyof typeof WAYS;

/** Makes a client for the keys with a prefix, which in a cluster are in one slot. It connects on first use. */
export function redisClient(source: RedisSource, prefix: string = PREFIX): Required<Redis> {
  const given = "timeout" in source ? source.timeout : undefined;
  const timeout = toMillis("timeout", given ?? 2_000, 1, LONGEST_SPAN);
  const key = ownKey(prefix, "generation");
  return redisOver(routeTo(source, { timeout, key }), timeout);
}

/** Returns how to make clients. Rejects with a TypeError when they need the package ioredis, which is not installed. */
export async function redisOpener(
  source: RedisSource,
  call = "openRedis",
): Promise<(prefix: string) => Required<Redis>> {
  checkOpening(call, source, '{ host: "127.0.0.1" }');
  if (!isClient(source)) {
    checkOptionNames("redis", source, CONNECTION_OPTIONS);
    await loadIoredis();
  }
  return (prefix) => redisClient(source, prefix);
}

function isClient(source: RedisSource): source is IoredisClient | NodeRedisClient {
  return "sendCommand" in source;
}

function routeTo(source: RedisSource, options: RouteOptions): Route {
  if (!isClient(source)) return routeBy(source, options);
  const isIoredis = "isCluster" in source;
  return isIoredis ? routeLikeIoredis(source, options) : routeLikeNodeRedis(source, options);
}

function routeBy(
  source: RedisOptions | RedisClusterOptions | RedisSentinelOptions,
  { timeout, key }: RouteOptions,
): Route {
  checkTlsOptions(source.tls);
  const named = Object.keys(WAYS).filter((option) => Object.hasOwn(source, option)) as Way[];
  const ways = new Set(named.map((option) => WAYS[option]));
  if (ways.size > 1) throw new TypeError(`redis needs ${[...ways].join(" or ")}, not both`);
  if ("cluster" in source) {
    const nodes = toAddresses("cluster", source.cluster, 6_379);
    return new ClusterRoute({ nodes: () => nodes, dial: dialIoredis(source, timeout), key });
  }
  checkWhole("database", source.database ?? 0, 0, Number.MAX_SAFE_INTEGER);
  if (!("sentinels" in source)) {
    return routeToServer(toAddress(source), dialIoredis(source, timeout));
  }
  const { master, sentinelLogin = {} } = source;
  checkText("name of the master", master, 1_000);
  checkOptionNames("sentinelLogin", sentinelLogin, SENTINEL_LOGIN);
  checkTlsOptions(sentinelLogin.tls);
  return new SentinelRoute({
    sentinels: toAddresses("sentinels", source.sentinels, 26_379),
    master,
    dial: dialIoredis(source, timeout),
    dialSentinel: dialIoredis(sentinelLogin, timeout),
  });
}
