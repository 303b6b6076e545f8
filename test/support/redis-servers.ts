import { type Server, startServer } from "../../infra/servers/start.ts";

/** Redis servers that all tests use at once: each takes keys that no other has. */
export interface RedisServer {
  readonly name: "redis" | "redis-replica" | "redlock";
  readonly version: string;
  readonly url: string;

  /** Of each process; of a primary and its replica the primary's comes first. */
  readonly ports: readonly number[];
}

/** One server, a primary with a replica, and five servers for Redlock. */
export async function startRedisServers(say: (step: string) => void) {
  const names = ["redis", "redis-replica", "redlock"] as const;
  const started = await Promise.all(names.map((name) => startServer(name, { onProgress: say })));
  const servers = started.map((server, i) => toRedisServer(names[i] ?? "redis", server));
  const stop = async () => {
    await Promise.all(started.map((server) => server.stop()));
  };
  return { servers, stop };
}

function toRedisServer(name: RedisServer["name"], { version, url, nodes }: Server): RedisServer {
  return { name, version, url, ports: nodes.map(({ place }) => place.port) };
}
