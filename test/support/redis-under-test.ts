import { randomUUID } from "node:crypto";
import { inject } from "vitest";
import { openRedis } from "../../core/redis/ioredis.ts";
import type { Redis, RedisOptions } from "../../core/redis/redis.ts";
import type { RedisServer } from "./redis-servers.ts";
import { TcpProxy } from "./tcp-proxy.ts";

/** The server, or the set of servers, of this name that all tests use at once. */
export function redisServer(name: RedisServer["name"]): RedisServer {
  const found = inject("redisServers").find((server) => server.name === name);
  if (!found) throw new Error(`there is no ${name}`);
  return found;
}

/** A client of a server on loopback: by default of the one that all tests share. */
export function openLocal(options: Partial<RedisOptions> = {}): Redis {
  const [port = 0] = redisServer("redis").ports;
  return openRedis({ host: "127.0.0.1", port, ...options });
}

/** A prefix of keys that nobody else uses. */
export function anyPrefix(): string {
  return `test-${randomUUID()}`;
}

/** A wire to the server that all tests share. */
export function wireToRedis(): Promise<TcpProxy> {
  const [port = 0] = redisServer("redis").ports;
  return TcpProxy.to(port);
}
