import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Journal } from "../../../core/journal/journal.ts";
import type { LockStore } from "../../../core/lock/lock.ts";
import type { Millis } from "../../../core/lock/time.ts";
import { dynamodbLocks } from "../../../core/stores/dynamodb/locks/index.ts";
import { etcdLocks } from "../../../core/stores/etcd/locks/index.ts";
import { memoryJournal } from "../../../core/stores/memory/journal.ts";
import { memoryLocks, newMemory } from "../../../core/stores/memory/locks.ts";
import { redisLocks } from "../../../core/stores/redis/locks/index.ts";
import { sqlLocks } from "../../../core/stores/sql/locks.ts";
import { zookeeperLocks } from "../../../core/stores/zookeeper/locks/index.ts";
import { type AnyStore, open } from "../../../infra/open.ts";
import { openReady } from "../../../infra/open-ready.ts";
import { startServer } from "../../../infra/servers/start.ts";

/** A store with a server of its own. */
export interface GrowingStore {
  readonly journal: Journal | undefined;

  /** Long, so that renewals do not disturb the measurement. */
  readonly ttl: Millis;

  /** Makes a client that waits by itself, over the connections of all others where the store's clients share them. */
  waiter(): LockStore;

  /** Opens a client with connections of its own. `close` closes it. */
  connect(): Promise<LockStore>;
  close(): Promise<void>;
}

/** The stores, in the order of their measurement. */
export const GROWING_STORES = [
  "memory",
  "sqlite",
  "mariadb",
  "postgres",
  "redis",
  "etcd",
  "zookeeper",
  "dynamodb",
] as const;

export type GrowingStoreName = (typeof GROWING_STORES)[number];

const HOUR: Millis = 3_600_000;

/** The longest ttl of a session in ZooKeeper, whose locks share one. */
const SESSION: Millis = 30_000;

/** Makes waiters over the connections of an open store. */
const WAITERS: Readonly<
  Record<Exclude<GrowingStoreName, "memory">, (store: AnyStore) => LockStore>
> = {
  sqlite: ({ database }) => sqlLocks(database),
  mariadb: ({ database }) => sqlLocks(database),
  postgres: ({ database }) => sqlLocks(database),
  redis: ({ redis }) => redisLocks(redis),
  etcd: ({ etcd }) => etcdLocks(etcd),
  zookeeper: ({ zookeeper }) => zookeeperLocks(zookeeper),
  dynamodb: ({ dynamodb }) => dynamodbLocks(dynamodb),
};

export async function openGrowingStore(
  name: GrowingStoreName,
  onProgress: (step: string) => void,
): Promise<GrowingStore> {
  if (name === "memory") return inMemory();
  const { url, stop } = name === "sqlite" ? inFile() : await startServer(name, { onProgress });
  const stores: AnyStore[] = [];
  const connect = async () => {
    const store: AnyStore = await open(url);
    stores.push(store);
    return store;
  };
  const shared = await openReady(url);
  stores.push(shared);
  return {
    journal: shared.has("journal") ? shared.journal : undefined,
    ttl: name === "zookeeper" ? SESSION : HOUR,
    waiter: () => WAITERS[name](shared),
    connect: async () => (await connect()).locks,
    async close() {
      await Promise.all(stores.map((store) => store.close()));
      await stop();
    },
  };
}

function inMemory(): GrowingStore {
  const memory = newMemory();
  const waiter = () => memoryLocks({ memory });
  const connect = async () => waiter();
  return { journal: memoryJournal(), ttl: HOUR, waiter, connect, close: async () => {} };
}

function inFile() {
  const file = join(tmpdir(), `lockstep-growth-${process.pid}.db`);
  const stop = async () => {
    for (const end of ["", "-wal", "-shm"]) await rm(file + end, { force: true });
  };
  return { url: `sqlite:${file}`, stop };
}
