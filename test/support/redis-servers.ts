import { KINDS } from "../../infra/servers/kinds.ts";
import { startServer } from "../../infra/servers/start.ts";
import { orMissing } from "./missing.ts";

/** A Redis server that all tests share: each test uses keys of its own. */
export interface RedisServer {
  readonly name: "redis" | "redis-replica" | "redlock";
  readonly version: string;
  readonly url: string;

  /** The port of each process; the primary's port comes before the replica's. */
  readonly ports: readonly number[];
}

/** One server, a primary with a replica, and five servers for Redlock. */
export function startRedisServers(say: (step: string) => void) {
  const names = ["redis", "redis-replica", "redlock"] as const;
  const shapeOf = (name: RedisServer["name"]): RedisServer => {
    return { name, version: "", url: "", ports: Array.from({ length: KINDS[name].size }, () => 0) };
  };
  return Promise.all(names.map((name) => orMissing(start(name, say), shapeOf(name))));
}

async function start(name: RedisServer["name"], say: (step: string) => void) {
  const { version, url, nodes, stop } = await startServer(name, { onProgress: say });
  const about: RedisServer = { name, version, url, ports: nodes.map(({ config }) => config.port) };
  return { about, stop };
}
