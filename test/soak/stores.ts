import { temporaryFolder } from "../../infra/servers/reap.ts";
import { startServer } from "../../infra/servers/start.ts";

interface WatchedStore extends AsyncDisposable {
  readonly url: string;
}

/** The stores whose growth is watched. Each call starts servers of its own. */
export const STORES = {
  sqlite: openSqlite,
  postgres: () => startServer("postgres"),
  pgbouncer: () => startServer("pgbouncer"),
  mariadb: () => startServer("mariadb"),
  mysql: () => startServer("mysql"),
  etcd: () => startServer("etcd"),
  "etcd-cluster": () => startServer("etcd-cluster"),
  "etcd-gateway": startEtcdGateway,
  redis: () => startServer("redis"),
  "redis-cluster": () => startServer("redis-cluster"),
  "redis-sentinel": () => startServer("redis-sentinel"),
  redlock: () => startServer("redlock"),
  zookeeper: () => startServer("zookeeper"),
  "zookeeper-cluster": () => startServer("zookeeper-cluster"),
  dynamodb: () => startServer("dynamodb"),
} as const satisfies Readonly<Record<string, () => Promise<WatchedStore>>>;

export type WatchedStoreName = keyof typeof STORES;

async function openSqlite(): Promise<WatchedStore> {
  const folder = await temporaryFolder("soak");
  const dispose = () => folder.remove();
  return { url: `sqlite:${folder.path}/soak.db`, [Symbol.asyncDispose]: dispose };
}

/** An etcd whose clients use its JSON gateway. */
async function startEtcdGateway(): Promise<WatchedStore> {
  const server = await startServer("etcd");
  return { ...server, url: server.url.replace("etcd:", "etcd+http:") };
}
