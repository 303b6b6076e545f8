import { expect, test } from "vitest";
import { openReady } from "../../infra/open-ready.ts";
import { sizeOf } from "./size.ts";
import { STORES } from "./stores.ts";

/** The records of a lock that is held, on a store of each way to count. */
const RECORDS = {
  // A lock and its fence.
  sqlite: 2,
  mariadb: 2,
  redis: 2,
  // Those of a replica are not counted again.
  "redis-cluster": 2,
  // On each of five servers.
  redlock: 10,
  // A queue and its entry.
  zookeeper: 2,
  // The fence is in the same item.
  dynamodb: 1,
  // The fence is a revision of the store.
  etcd: 1,
} as const satisfies Partial<Record<keyof typeof STORES, number>>;

const stores = Object.keys(RECORDS) as (keyof typeof RECORDS)[];

test.each(stores)("the size of %s counts the records of a lock", async (name) => {
  await using store = await STORES[name]();
  await using opened = await openReady(store.url);
  const options = { ttl: 60_000, wait: 30_000 };
  // The first lock also adds the records that all locks share.
  await opened.locks.lock("first", options);
  const { records: before } = await sizeOf(store.url);
  await opened.locks.lock("second", options);
  const { records: after } = await sizeOf(store.url);
  expect(after - before).toBe(RECORDS[name]);
});
