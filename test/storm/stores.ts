import { join } from "node:path";
import { temporaryFolder } from "../../infra/servers/reap.ts";
import { startServer } from "../../infra/servers/start.ts";

/** The stores of a storm. */
export interface StormStores extends AsyncDisposable {
  readonly store: string;
  readonly locks?: string;

  /** Kills the server of the database, and restarts it on its data. */
  readonly restart?: () => Promise<void>;
}

export const STORES = {
  sqlite: openSqlite,
  mysql: () => openSql("mariadb"),
  postgres: () => openSql("postgres"),
  "mysql+etcd": openMysqlAndEtcd,
  "sqlite+redis": openSqliteAndRedis,
  dynamodb: openDynamodb,
} as const satisfies Readonly<Record<string, () => Promise<StormStores>>>;

export type StormStoresName = keyof typeof STORES;

async function openSqlite(): Promise<StormStores> {
  const folder = await temporaryFolder("storm");
  const store = `sqlite:${join(folder.path, "shop.db")}`;
  return { store, [Symbol.asyncDispose]: folder.remove };
}

async function openSql(name: "mariadb" | "postgres"): Promise<StormStores> {
  const server = await startServer(name);
  const [node] = server.nodes;
  const restart = async () => {
    await node?.kill("SIGKILL");
    await node?.start();
  };
  return {
    store: `${server.url}?connections=2`,
    ...(node && { restart }),
    [Symbol.asyncDispose]: () => server.stop(),
  };
}

async function openMysqlAndEtcd(): Promise<StormStores> {
  const [mysql, etcd] = await Promise.all([openSql("mariadb"), startServer("etcd")]);
  return {
    ...mysql,
    locks: etcd.url.replace("etcd:", "etcd+http:"),
    async [Symbol.asyncDispose]() {
      await mysql[Symbol.asyncDispose]();
      await etcd.stop();
    },
  };
}

async function openSqliteAndRedis(): Promise<StormStores> {
  const [sqlite, redis] = await Promise.all([openSqlite(), startServer("redis")]);
  return {
    ...sqlite,
    locks: redis.url,
    async [Symbol.asyncDispose]() {
      await sqlite[Symbol.asyncDispose]();
      await redis.stop();
    },
  };
}

/** DynamoDB Local may lose an answered transaction when it is killed, which DynamoDB does not: it is not restarted. */
async function openDynamodb(): Promise<StormStores> {
  const { url, stop } = await startServer("dynamodb");
  return { store: url, [Symbol.asyncDispose]: stop };
}
