import { afterAll, beforeAll, expect } from "vitest";
import type { LockStore } from "../../../core/lock/lock.ts";
import type { StoreOptions } from "../../../core/lock/store.ts";
import { zookeeperClient } from "../../../core/stores/zookeeper/client/client.ts";
import type { ZooKeeper, ZooKeeperSession } from "../../../core/stores/zookeeper/index.ts";
import { zookeeperLocks } from "../../../core/stores/zookeeper/locks/index.ts";
import { faulty } from "../../support/faulty-zookeeper.ts";
import { contendersOf, freshRoot, singleZooKeeper } from "../../support/zookeeper.ts";

export const LONG = 20_000;

/** A ttl that a test outlasts, and that outlasts the pauses of a busy machine. */
export const SHORT = 4_000;

/** A client of the single server, and a session that looks at its nodes. */
export let zookeeper: ZooKeeper;
export let admin: ZooKeeperSession;

const stores: LockStore[] = [];

/** Connects to the single server before the tests of a file, and closes their stores after them. */
export function connectBeforeTests(): void {
  beforeAll(async () => {
    const { servers } = singleZooKeeper();
    zookeeper = zookeeperClient({ servers });
    admin = await zookeeper.openSession(60_000);
  });

  afterAll(async () => {
    await Promise.all(stores.splice(0).map((store) => store.close()));
    await zookeeper.close();
  });
}

/** Opens a store that is closed after the tests of the file. */
export function openStore(options: StoreOptions & { root: string }, client = zookeeper): LockStore {
  const store = zookeeperLocks(client, options);
  stores.push(store);
  return store;
}

/** Makes two clients of the same locks; faults can be injected into the requests of the first one. */
export function clients() {
  const flaky = faulty(zookeeper);
  const root = freshRoot();
  const [ours, theirs] = [openStore({ root }, flaky.zookeeper), openStore({ root })];
  return { flaky, root, ours, theirs };
}

/** Expects that these queues are empty. */
export async function nobodyIn(root: string, ...names: readonly string[]): Promise<void> {
  for (const name of names) expect(await contendersOf(admin, `${root}/${name}`)).toEqual([]);
}
