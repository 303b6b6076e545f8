import { join } from "node:path";
import { get, put } from "../../core/stores/etcd/client/etcd.ts";
import { etcdGatewayClient } from "../../core/stores/etcd/client/gateway.ts";
import { nodeFetch } from "../../core/stores/node-fetch.ts";
import { openReady } from "../../infra/open-ready.ts";
import type { ServerName } from "../../infra/servers/kinds.ts";
import { temporaryFolder } from "../../infra/servers/reap.ts";
import type { Server, ServerNode } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { endpointsOf, QUICK_ETCD } from "../support/etcd-servers.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";

/** A store on servers of its own, with a proxy in front of each server that can cut the connections. */
export interface CampaignStore extends AsyncDisposable {
  readonly version: string;

  /** The store's URL, through the wires. */
  readonly url: string;
  readonly wires: readonly TcpProxy[];

  /** The server processes that may be killed and frozen. The store survives the loss of any one. */
  readonly nodes: readonly ServerNode[];

  /** Maintenance during the campaign, by name. */
  readonly maintenance: Readonly<Record<string, () => Promise<void>>>;
}

type Open = (log: (line: string) => void) => Promise<CampaignStore>;

/** Writes are on disk before they are acknowledged; otherwise a restart would lose locks. */
export const DURABLE_REDIS = ["--appendonly", "yes", "--appendfsync", "always"];

export const STORES = {
  sqlite: openSqlite,
  mariadb: sql("mariadb"),
  mysql: sql("mysql"),
  postgres: sql("postgres"),
  etcd: etcd("etcd"),
  "etcd-cluster": etcd("etcd-cluster"),
  redis: (log) => onServers("redis", { log, args: DURABLE_REDIS }),
  redlock: (log) => onServers("redlock", { log, args: DURABLE_REDIS }),
  zookeeper: (log) => onServers("zookeeper", { log }),
  "zookeeper-cluster": (log) => onServers("zookeeper-cluster", { log }),
  dynamodb: openDynamodb,
} as const satisfies Readonly<Record<string, Open>>;

export type CampaignStoreName = keyof typeof STORES;

interface Servers {
  readonly log: (line: string) => void;
  readonly args?: readonly string[];
}

async function onServers(name: ServerName, { log, args = [] }: Servers): Promise<CampaignStore> {
  const server = await startServer(name, { onProgress: log, args });
  const { url, wires } = await wiresTo(server);
  return {
    version: server.version,
    url,
    wires,
    nodes: server.nodes,
    maintenance: {},
    async [Symbol.asyncDispose]() {
      await Promise.all(wires.map((wire) => wire.close()));
      await server.stop();
    },
  };
}

/** Puts a proxy in front of each node, and returns the URL through them. */
export async function wiresTo({ nodes, url }: Server): Promise<{
  readonly url: string;
  readonly wires: readonly TcpProxy[];
}> {
  const wires = await Promise.all(nodes.map(({ config }) => TcpProxy.to(config.port)));
  const ports = new Map(nodes.map(({ config }, i) => [config.port, wires[i]?.port]));
  return { url: url.replace(/:(\d+)/g, (_, port) => `:${ports.get(Number(port))}`), wires };
}

async function openSqlite(): Promise<CampaignStore> {
  const folder = await temporaryFolder("campaign");
  return {
    version: `SQLite of Node ${process.versions.node}`,
    url: `sqlite:${join(folder.path, "campaign.db")}`,
    wires: [],
    nodes: [],
    maintenance: {},
    [Symbol.asyncDispose]: folder.remove,
  };
}

function sql(name: ServerName): Open {
  return async (log) => {
    const store = await onServers(name, { log });
    await (await openReady(store.url)).close();
    return store;
  };
}

/** DynamoDB Local keeps its tables in memory, so its process is spared: faults are those of the wire and of clients. */
async function openDynamodb(log: (line: string) => void): Promise<CampaignStore> {
  const store = await onServers("dynamodb", { log });
  await (await openReady(store.url)).close();
  return { ...store, nodes: [] };
}

/** etcd, compacted while waiters watch its keys. */
function etcd(name: "etcd" | "etcd-cluster"): Open {
  return async (log) => {
    const store = await onServers(name, { log, args: QUICK_ETCD[name] });
    const endpoints = endpointsOf(store);
    const client = etcdGatewayClient({ endpoints, fetch: nodeFetch() });
    const compact = async () => {
      const { revision } = await client.range(get("campaign-compaction"));
      await client.txn({ when: [], do: [put("campaign-compaction", String(revision))] });
      const body = JSON.stringify({ revision: String(revision) });
      const url = `http://${endpoints[0]}/v3/kv/compaction`;
      await fetch(url, { method: "POST", body, signal: AbortSignal.timeout(2_000) });
    };
    return {
      ...store,
      maintenance: { compaction: compact },
      async [Symbol.asyncDispose]() {
        await client.close();
        await store[Symbol.asyncDispose]();
      },
    };
  };
}
