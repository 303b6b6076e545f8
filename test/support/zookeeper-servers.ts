import { type Server, startServer } from "../../infra/servers/start.ts";

/** A ZooKeeper server or ensemble that all tests use at once: each takes nodes that no other has. */
export interface ZooKeeperServer {
  readonly name: string;
  readonly url: string;

  /** host:port of each node. */
  readonly servers: readonly string[];
}

/** One node and three. */
export async function startZooKeeperServers(say: (step: string) => void) {
  const kinds = ["zookeeper", "zookeeper-cluster"] as const;
  const started = await Promise.all(kinds.map((kind) => startServer(kind, { onProgress: say })));
  const stop = async () => {
    await Promise.all(started.map((server) => server.stop()));
  };
  return { servers: started.map(toZooKeeperServer), stop };
}

export function toZooKeeperServer({ url }: Pick<Server, "url">): ZooKeeperServer {
  const servers = url.slice("zookeeper://".length).split(",");
  const name = servers.length === 1 ? "zookeeper" : `zookeeper with ${servers.length} nodes`;
  return { name, url, servers };
}
