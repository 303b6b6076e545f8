import { afterAll, expect, test } from "vitest";
import type { Lock, LockStore } from "../../../core/lock/lock.ts";
import { zookeeperClient } from "../../../core/stores/zookeeper/client/client.ts";
import { zookeeperLocks } from "../../../core/stores/zookeeper/locks/index.ts";
import { type FaultyZooKeeper, faulty } from "../../support/faulty-zookeeper.ts";
import { pause, until } from "../../support/until.ts";
import { contendersOf, freshRoot, singleZooKeeper } from "../../support/zookeeper.ts";

const LONG = 30_000;

const zookeeper = zookeeperClient({ servers: singleZooKeeper().servers });

afterAll(() => zookeeper.close());

async function callsOf(client: ReturnType<typeof faulty>, call: () => Promise<unknown>) {
  const before = client.calls.length;
  await call();
  return client.calls.slice(before);
}

test("lock takes three requests in one round trip, unlock one; tryLock on a busy lock writes nothing", async () => {
  const counted = faulty(zookeeper);
  const root = freshRoot();
  await using ours = zookeeperLocks(counted.zookeeper, { root });
  await using theirs = zookeeperLocks(zookeeper, { root });
  const session = await zookeeper.openSession(LONG);
  // Not containers, which ZooKeeper would delete.
  for (const path of [root, `${root}/a`]) await session.create({ path });
  const options = { ttl: LONG, wait: LONG };
  const pair = () => ours.withLock("a", options, async () => {});
  await pair();
  expect(await callsOf(counted, pair)).toEqual(["create", "read", "children", "remove"]);
  const free = async () => (await ours.tryLock("a", { ttl: LONG }))?.unlock();
  expect(await callsOf(counted, free)).toEqual([
    "sync",
    "children",
    "create",
    "read",
    "children",
    "remove",
  ]);
  const lock = await theirs.lock("a", options);
  const line = await contendersOf(session, `${root}/a`);
  const busy = async () => expect(await ours.tryLock("a", { ttl: LONG })).toBeUndefined();
  expect(await callsOf(counted, busy)).toEqual(["sync", "children"]);
  expect(await contendersOf(session, `${root}/a`)).toEqual(line);
  await lock.unlock();
});

test("a lock on several names takes one change", async () => {
  const counted = faulty(zookeeper);
  await using store = zookeeperLocks(counted.zookeeper, { root: freshRoot() });
  const pair = async () => {
    const all = await store.lockAll(["a", "b", "c"], { ttl: LONG, wait: LONG });
    const tokens = [...all.fences.values()].map(({ token }) => token);
    expect(new Set(tokens).size).toBe(1);
    await all.unlock();
  };
  await pair();
  const calls = await callsOf(counted, pair);
  expect(calls.filter((name) => name === "multi")).toHaveLength(2);
  expect(calls).not.toContain("create");
  expect(calls).not.toContain("remove");
});

test("200 waiters get the lock in their order, and each release wakes one, which sends one request", async () => {
  const root = freshRoot();
  const session = await zookeeper.openSession(120_000);
  const options = { ttl: 120_000, wait: 120_000 };
  await using first = zookeeperLocks(zookeeper, { root });
  const holder = await first.lock("a", options);
  const held: number[] = [];
  const releases: (() => Promise<unknown>)[] = [];
  const waiters: { counted: FaultyZooKeeper; store: LockStore; locked: Promise<void> }[] = [];
  for (let i = 0; i < 200; i += 1) {
    const counted = faulty(zookeeper);
    const store = zookeeperLocks(counted.zookeeper, { root });
    const locked = store.lock("a", options).then(
      (lock) => {
        held.push(i);
        releases.push(() => lock.unlock());
      },
      () => {},
    );
    // The waiter is in the queue and has both of its watches.
    await until(() => counted.calls.filter((name) => name === "read").length >= 3);
    waiters.push({ counted, store, locked });
  }
  /** Returns how often each waiter has read its predecessors. A holder reads its own node a while later. */
  const looks = () =>
    waiters.map(({ counted }) => counted.calls.filter((name) => name === "children").length);
  let release: () => Promise<unknown> = () => holder.unlock();
  for (let turn = 0; turn < 10; turn += 1) {
    const before = looks();
    await release();
    await until(() => held.length === turn + 1);
    const looked = looks().map((count, i) => count - (before[i] ?? 0));
    expect(looked.flatMap((count, i) => (count > 0 ? [[i, count]] : []))).toEqual([[turn, 1]]);
    release = releases[turn] as () => Promise<unknown>;
  }
  expect(held).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  await Promise.all(waiters.map(({ store }) => store.close()));
  await Promise.all(waiters.map(({ locked }) => locked));
  expect(await contendersOf(session, `${root}/a`)).toEqual([]);
});

test("a waiter whose predecessor gives up waits for the one before that, and for no other", async () => {
  const root = freshRoot();
  await using first = zookeeperLocks(zookeeper, { root });
  const options = { ttl: LONG, wait: LONG };
  const holder = await first.lock("a", options);
  const caller = new AbortController();
  const waiters: { counted: FaultyZooKeeper; store: LockStore; locked: Promise<Lock> }[] = [];
  for (let i = 0; i < 4; i += 1) {
    const counted = faulty(zookeeper);
    const store = zookeeperLocks(counted.zookeeper, { root });
    const locked = store.lock("a", { ...options, ...(i === 2 && { signal: caller.signal }) });
    await until(() => counted.calls.filter((name) => name === "read").length >= 3);
    waiters.push({ counted, store, locked });
  }
  const [second, third, fourth, fifth] = waiters;
  const outcome = expect(fourth?.locked).rejects.toBe("enough");
  caller.abort("enough");
  await outcome;
  await until(() => fifth?.counted.calls.filter((name) => name === "read").length === 4);
  const before = fifth?.counted.calls.length;
  await holder.unlock();
  const lock = await second?.locked;
  await pause(50);
  expect(fifth?.counted.calls).toHaveLength(before ?? 0);
  await lock?.unlock();
  await (await third?.locked)?.unlock();
  await (await fifth?.locked)?.unlock();
  await Promise.all(waiters.map(({ store }) => store.close()));
});
