import { randomUUID } from "node:crypto";
import { inject } from "vitest";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import type { Redis, RedisOptions } from "../../core/stores/redis/client/redis.ts";
import type { RedisServer } from "./redis-servers.ts";
import { TcpProxy } from "./tcp-proxy.ts";

/** Returns the shared server, or set of servers, of this name. */
export function redisServer(name: RedisServer["name"]): RedisServer {
  const found = inject("redisServers").find((server) => server.name === name);
  if (!found) throw new Error(`there is no ${name}`);
  return found;
}

/** Returns a client of a server on loopback, by default of the shared one. */
export function openLocal(options: Partial<RedisOptions> = {}): Required<Redis> {
  const [port = 0] = redisServer("redis").ports;
  return redisClient({ host: "127.0.0.1", port, ...options });
}

/** Returns a unique prefix of keys. */
export function anyPrefix(): string {
  return `test-${randomUUID()}`;
}

/** Starts a proxy to the shared server. */
export function wireToRedis(): Promise<TcpProxy> {
  const [port = 0] = redisServer("redis").ports;
  return TcpProxy.to(port);
}
