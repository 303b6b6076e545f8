import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { get, put } from "../../core/etcd/etcd.ts";
import { openEtcdGateway } from "../../core/etcd/gateway.ts";
import { nodeFetch } from "../../core/etcd/node-fetch.ts";
import { migrate } from "../../infra/migrate.ts";
import { open } from "../../infra/open.ts";
import type { ServerName } from "../../infra/servers/kinds.ts";
import type { ServerNode } from "../../infra/servers/node.ts";
import { startServer } from "../../infra/servers/start.ts";
import { endpointsOf, QUICK_ETCD } from "../support/etcd-servers.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";

/** Servers of a campaign's own, with a wire in front of each that can be broken. */
export interface CampaignStore extends AsyncDisposable {
  readonly version: string;

  /** Through the wires. */
  readonly url: string;
  readonly wires: readonly TcpProxy[];

  /** The processes that may be killed and frozen; the store has to survive the loss of any one. */
  readonly nodes: readonly ServerNode[];

  /** What an operator does meanwhile, by name. */
  readonly chores: Readonly<Record<string, () => Promise<void>>>;
}

type Open = (say: (line: string) => void) => Promise<CampaignStore>;

/** A write is on the disk before it is acknowledged, or a restart would lose locks: see the README on Redis. */
const DURABLE_REDIS = ["--appendonly", "yes", "--appendfsync", "always"];

export const STORES = {
  sqlite: openSqlite,
  mysql: sql("mysql"),
  etcd: etcd("etcd"),
  "etcd-cluster": etcd("etcd-cluster"),
  redis: (say) => onServers("redis", { say, args: DURABLE_REDIS }),
  redlock: (say) => onServers("redlock", { say, args: DURABLE_REDIS }),
  zookeeper: (say) => onServers("zookeeper", { say }),
  "zookeeper-cluster": (say) => onServers("zookeeper-cluster", { say }),
} as const satisfies Readonly<Record<string, Open>>;

export type CampaignStoreName = keyof typeof STORES;

interface Servers {
  readonly say: (line: string) => void;
  readonly args?: readonly string[];
}

async function onServers(name: ServerName, { say, args = [] }: Servers): Promise<CampaignStore> {
  const server = await startServer(name, { onProgress: say, args });
  const wires = await Promise.all(server.nodes.map(({ place }) => TcpProxy.to(place.port)));
  const ports = new Map(server.nodes.map(({ place }, i) => [place.port, wires[i]?.port]));
  const url = server.url.replace(/:(\d+)/g, (_, port) => `:${ports.get(Number(port))}`);
  return {
    version: server.version,
    url,
    wires,
    nodes: server.nodes,
    chores: {},
    async [Symbol.asyncDispose]() {
      await Promise.all(wires.map((wire) => wire.close()));
      await server.stop();
    },
  };
}

async function openSqlite(): Promise<CampaignStore> {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-campaign-"));
  return {
    version: `SQLite of Node ${process.versions.node}`,
    url: `sqlite:${join(folder, "campaign.db")}`,
    wires: [],
    nodes: [],
    chores: {},
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}

function sql(name: ServerName): Open {
  return async (say) => {
    const store = await onServers(name, { say });
    await using opened = await open(store.url);
    if (opened.database) await migrate(opened.database);
    return store;
  };
}

/** etcd is compacted while waiters watch its keys. */
function etcd(name: "etcd" | "etcd-cluster"): Open {
  return async (say) => {
    const store = await onServers(name, { say, args: QUICK_ETCD[name] });
    const endpoints = endpointsOf(store);
    const client = openEtcdGateway({ endpoints, fetch: nodeFetch() });
    const compact = async () => {
      const { revision } = await client.range(get("campaign-compaction"));
      await client.txn({ when: [], do: [put("campaign-compaction", String(revision))] });
      const body = JSON.stringify({ revision: String(revision) });
      const url = `http://${endpoints[0]}/v3/kv/compaction`;
      await fetch(url, { method: "POST", body, signal: AbortSignal.timeout(2_000) });
    };
    return {
      ...store,
      chores: { compaction: compact },
      async [Symbol.asyncDispose]() {
        await client.close();
        await store[Symbol.asyncDispose]();
      },
    };
  };
}
