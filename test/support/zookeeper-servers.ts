import { KINDS } from "../../infra/servers/kinds.ts";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { EVERY_VERSION } from "./matrix.ts";
import { orMissing } from "./missing.ts";

/** A ZooKeeper server or ensemble that all tests share: each test uses nodes of its own. */
export interface ZooKeeperServer {
  readonly name: string;
  readonly url: string;

  /** host:port of each node. */
  readonly servers: readonly string[];
}

/** Starts one node; in `npm run test:long` an ensemble of three as well. */
export function startZooKeeperServers(say: (step: string) => void) {
  const kinds: readonly Kind[] = EVERY_VERSION ? ["zookeeper", "zookeeper-cluster"] : ["zookeeper"];
  const shapeOf = (kind: Kind) =>
    toZooKeeperServer({ url: KINDS[kind].url(Array.from({ length: KINDS[kind].size }, () => 0)) });
  return Promise.all(kinds.map((kind) => orMissing(start(kind, say), shapeOf(kind))));
}

type Kind = "zookeeper" | "zookeeper-cluster";

async function start(kind: Kind, say: (step: string) => void) {
  const server = await startServer(kind, { onProgress: say });
  return { about: toZooKeeperServer(server), stop: server.stop };
}

export function toZooKeeperServer({ url }: Pick<Server, "url">): ZooKeeperServer {
  const servers = url.slice("zookeeper://".length).split(",");
  const name = servers.length === 1 ? "zookeeper" : `zookeeper with ${servers.length} nodes`;
  return { name, url, servers };
}
