import { afterAll, afterEach, expect, test } from "vitest";
import type { LockStore } from "../../../core/lock/lock.ts";
import { etcdStore, Mutex, openEtcd, Session } from "../../../core/stores/etcd/index.ts";
import { freshPrefix } from "../../support/etcd.ts";
import { singleEtcds } from "../../support/etcd-under-test.ts";
import { type Fault, faulty, LATE } from "../../support/faulty-etcd.ts";
import { pause, until, within } from "../../support/until.ts";

const LONG = 30_000;

const [server = { endpoints: [] }] = singleEtcds();
const etcd = openEtcd(server);
const stores: LockStore[] = [];

afterEach(async () => {
  await Promise.all(stores.splice(0).map((store) => store.close()));
});

afterAll(() => etcd.close());

/** Two clients with the same locks; the calls of the first one go wrong as told. */
function clients() {
  const flaky = faulty(etcd);
  const prefix = `${freshPrefix()}/`;
  const [ours, theirs] = [etcdStore(flaky.etcd, { prefix }), etcdStore(etcd, { prefix })];
  stores.push(ours, theirs);
  /** The next transaction meets this fault, and so do the ones after it, `times` in all. */
  const strike = (fault: Fault, times = 1) => {
    let left = times;
    flaky.decide = (call) => {
      if (call !== "txn" || left === 0) return undefined;
      left -= 1;
      return fault;
    };
  };
  return { ours, theirs, strike };
}

test("a lock that was lost is not taken over by the next waiter of its client, however its removal goes", async () => {
  const { ours, theirs, strike } = clients();
  const lost = await ours.lock("a", { ttl: LONG, wait: 0, maxHold: 300 });
  const waiting = ours.lock("a", { ttl: LONG, wait: LONG });
  strike("request-lost");
  const next = await waiting;
  expect(next.fence.token > lost.fence.token).toBe(true);
  expect(await theirs.tryLock("a", { ttl: LONG })).toBeUndefined();
  await pause(200);
  next.assertHeld();
  expect(await lost.unlock()).toBe("was-lost");
  next.assertHeld();
  expect(await next.unlock()).toBe("released");
});

test("a request that comes late leaves no lock behind while the client holds others", async () => {
  const { ours, theirs, strike } = clients();
  const other = await ours.lock("other", { ttl: 3_000, wait: 0 });
  const holder = await theirs.lock("a", { ttl: LONG, wait: 0 });
  strike("late");
  expect(await ours.tryLock("a", { ttl: 3_000 })).toBeUndefined();
  await holder.unlock();
  await pause(LATE + 100);
  const lock = await theirs.lock("a", { ttl: LONG, wait: LONG });
  other.assertHeld();
  expect(await lock.unlock()).toBe("released");
});

test("a lock whose release was never answered is free after a ttl, although the client holds others", async () => {
  const { ours, theirs, strike } = clients();
  const other = await ours.lock("other", { ttl: 1_000, wait: 0 });
  const lock = await ours.lock("a", { ttl: 1_000, wait: 0 });
  strike("request-lost", 100);
  await expect(lock.unlock()).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
  strike("request-lost", 0);
  const next = await within(10_000, theirs.lock("a", { ttl: LONG, wait: LONG }));
  other.assertHeld();
  expect(await next.unlock()).toBe("released");
});

test("a key that is gone is noticed although the first look fails", async () => {
  const { ours, theirs, strike } = clients();
  const lock = await ours.lock("a", { ttl: LONG, wait: 0 });
  const prefix = (await queueKeys(lock.fence.token)) ?? "";
  strike("refused");
  await etcd.txn({ when: [], do: [{ op: "remove", keys: prefix }] });
  await until(() => lock.signal.aborted, 4_000);
  expect(lock.signal.reason).toMatchObject({ why: "taken" });
  const next = await theirs.lock("a", { ttl: LONG, wait: 0 });
  expect(await lock.unlock()).toBe("was-lost");
  expect(await next.unlock()).toBe("released");
});

/** The key that was created at this revision. */
async function queueKeys(revision: bigint): Promise<string | undefined> {
  const { kvs } = await etcd.range({ op: "get", keys: { prefix: "" }, keysOnly: true });
  return kvs.find(({ createRevision }) => createRevision === revision)?.key;
}

test("maxHold counts from when the lock is had, not from when its session was renewed", async () => {
  const { ours } = clients();
  const first = await ours.lock("first", { ttl: 20_000, wait: 0 });
  await pause(1_500);
  const lock = await ours.lock("second", { ttl: 20_000, wait: 0, maxHold: 1_000 });
  await pause(500);
  lock.assertHeld();
  await until(() => lock.signal.aborted, 3_000);
  expect(lock.signal.reason).toMatchObject({ why: "max-hold" });
  first.assertHeld();
});

test("a mutex that is unlocked while it is locked once more is unlocked", async () => {
  await using session = await Session.open(etcd, { ttl: LONG });
  const mutex = new Mutex(etcd, session, freshPrefix());
  await mutex.lock();
  void mutex.lock();
  expect(await mutex.unlock()).toBe("released");
  expect(mutex.signal.aborted).toBe(true);
  expect(mutex.revision).toBeUndefined();
});

test("a mutex whose session ends while it is tried is not had", async () => {
  const flaky = faulty(etcd);
  const session = await Session.open(etcd, { ttl: 2_000 });
  const mutex = new Mutex(flaky.etcd, session, freshPrefix());
  flaky.answered = () => session.orphan();
  await expect(mutex.tryLock()).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
  expect(mutex.signal.aborted).toBe(true);
  const resumed = Mutex.resume(etcd, session, freshPrefix(), 1n);
  expect(resumed.signal.aborted).toBe(true);
});

test("each caller of a mutex gives up for itself", async () => {
  await using one = await Session.open(etcd, { ttl: LONG });
  await using other = await Session.open(etcd, { ttl: LONG });
  const prefix = freshPrefix();
  const holder = new Mutex(etcd, one, prefix);
  await holder.lock();
  const mutex = new Mutex(etcd, other, prefix);
  const first = new AbortController();
  const firstLock = mutex.lock({ signal: first.signal });
  const outcome = expect(firstLock).rejects.toThrow("first");
  const second = AbortSignal.abort(new Error("second"));
  await expect(mutex.lock({ signal: second })).rejects.toThrow("second");
  const third = mutex.lock();
  first.abort(new Error("first"));
  await outcome;
  await holder.unlock();
  await third;
  expect(await mutex.unlock()).toBe("released");
});

test("a client that is closed tells who waits", async () => {
  const client = openEtcd(server);
  const session = await Session.open(client, { ttl: 2_000 });
  await using other = await Session.open(etcd, { ttl: LONG });
  const prefix = freshPrefix();
  const holder = new Mutex(etcd, other, prefix);
  await holder.lock();
  const waiting = new Mutex(client, session, prefix).lock();
  const outcome = expect(within(4_000, waiting)).rejects.toMatchObject({ code: "STORE_CLOSED" });
  await pause(100);
  await client.close();
  await outcome;
  await holder.unlock();
});

test("a store that cannot be reached is told about within one ttl and a little", async () => {
  const store = etcdStore(openEtcd({ endpoints: ["127.0.0.1:1"] }), { closeEtcd: true });
  await expect(within(5_000, store.tryLock("a", { ttl: 2_000 }))).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
  });
  await within(10_000, store.close());
});
