import { afterAll, afterEach, expect, test, vi } from "vitest";
import type { LockStore } from "../../../core/lock/lock.ts";
import { type Etcd, put, remove, type Txn } from "../../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../../core/stores/etcd/client/grpc.ts";
import { etcdLocks } from "../../../core/stores/etcd/locks/index.ts";
import { EtcdMutex } from "../../../core/stores/etcd/locks/mutex.ts";
import { EtcdSession } from "../../../core/stores/etcd/locks/session.ts";
import { type EtcdStore, etcdStore } from "../../../core/stores/etcd/store.ts";
import { freshPrefix, queueOf } from "../../support/etcd.ts";
import { singleEtcds } from "../../support/etcd-under-test.ts";
import { type Fault, faulty } from "../../support/faulty-etcd.ts";
import { OwnEtcd } from "../../support/own-etcd.ts";
import { stopTimers } from "../../support/timers.ts";
import { pause, until, within } from "../../support/until.ts";

const LONG = 30_000;

/** A ttl whose end a test can wait for, and that outlasts the pauses of a busy machine. */
const SHORT = 6_000;

/** The shortest time until a waiter reads without a notification. */
const LOOK = 5_000;

const [server] = singleEtcds();
if (!server) throw new Error("there is no etcd server");
const etcd = etcdClient({ endpoints: server.endpoints });
const stores: LockStore[] = [];

afterEach(async () => {
  await Promise.all(stores.splice(0).map((store) => store.close()));
});

afterAll(() => etcd.close());

/** Makes two clients of the same locks; faults can be injected into the calls of the first one. */
function clients() {
  const flaky = faulty(etcd);
  const prefix = `${freshPrefix()}/`;
  const [ours, theirs] = [etcdLocks(flaky.etcd, { prefix }), etcdLocks(etcd, { prefix })];
  stores.push(ours, theirs);
  /** Injects these faults into the next transactions that write, one each. */
  const strikeEach = (...faults: Fault[]) => {
    flaky.decide = (call, _, [txn]) =>
      call === "txn" && (txn as Txn).do.some(({ op }) => op !== "get") ? faults.shift() : undefined;
  };
  /** Injects this fault into the next `times` transactions. */
  const strike = (fault: Fault, times = 1) => {
    strikeEach(...Array.from({ length: times }, () => fault));
  };
  return { prefix, ours, theirs, strike, strikeEach, deliver: flaky.deliver };
}

test("the next waiter of a client does not inherit a lost lock, even when the removal of its key fails", async () => {
  const { ours, theirs, strike } = clients();
  const lost = await ours.lock("a", { ttl: LONG, wait: LONG, maxHold: 300 });
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

test("a late request leaves no lock behind while the client holds others", async () => {
  const { ours, theirs, strike, deliver } = clients();
  const other = await ours.lock("other", { ttl: SHORT, wait: LONG });
  const holder = await theirs.lock("a", { ttl: LONG, wait: LONG });
  strike("late");
  expect(await ours.tryLock("a", { ttl: SHORT })).toBeUndefined();
  await holder.unlock();
  await deliver();
  const lock = await theirs.lock("a", { ttl: LONG, wait: LONG });
  other.assertHeld();
  expect(await lock.unlock()).toBe("released");
});

test("a request whose answer is lost, and then refused, leaves no lock behind while the client holds others", async () => {
  const { ours, theirs, strikeEach } = clients();
  const other = await ours.lock("other", { ttl: LONG, wait: LONG });
  strikeEach("answer-lost", "refused");
  const code = "STORE_UNAVAILABLE";
  await expect(ours.lock("a", { ttl: LONG, wait: LONG })).rejects.toMatchObject({ code });
  // Less than the time until what is left behind would be removed again.
  const lock = await theirs.lock("a", { ttl: LONG, wait: LONG / 4 });
  other.assertHeld();
  expect(await lock.unlock()).toBe("released");
});

test("an entry among nested names that was not the first, and could not be removed, is removed later", async () => {
  const flaky = faulty(etcd);
  const prefix = `${freshPrefix()}/`;
  const theirs = etcdLocks(etcd, { prefix });
  let count = 0;
  let loses = true;
  flaky.decide = (call) => (call === "txn" && count > 4 && loses ? "request-lost" : undefined);
  const txn: typeof etcd.txn = async (...args) => {
    count += 1;
    // Our client has seen no contender, and is about to enter.
    if (count === 3) await theirs.lock("a", { ttl: LONG, wait: LONG });
    return flaky.etcd.txn(...args);
  };
  const ours = etcdLocks({ ...flaky.etcd, txn }, { prefix });
  stores.push(ours, theirs);
  await theirs.lock("a/nested", { ttl: LONG, wait: LONG });
  await ours.lock("other", { ttl: SHORT, wait: LONG });
  count = 0;
  // The withdrawal is tried for one ttl: tryLock answers no or, after its 2 s, that the outcome is unknown.
  const told = await ours.tryLock("a", { ttl: SHORT }).catch(({ code }) => code);
  expect([undefined, "UNKNOWN_OUTCOME"]).toContain(told);
  expect(count).toBeGreaterThan(4);
  // The nested entry, theirs, and our leftover.
  expect(await queueOf(etcd, `${prefix}a`)).toHaveLength(3);
  loses = false;
  await until(async () => (await queueOf(etcd, `${prefix}a`)).length === 2);
});

test("a lock whose release was never answered is free after a ttl, although the client holds others", async () => {
  const { ours, theirs, strike } = clients();
  const other = await ours.lock("other", { ttl: SHORT, wait: LONG });
  const lock = await ours.lock("a", { ttl: SHORT, wait: LONG });
  strike("request-lost", 100);
  await expect(lock.unlock()).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
  strike("request-lost", 0);
  const next = await theirs.lock("a", { ttl: LONG, wait: LONG });
  other.assertHeld();
  expect(await next.unlock()).toBe("released");
});

test("a lock that is released while it moves to a longer session leaves no session behind", async () => {
  const flaky = faulty(etcd);
  let delay = 0;
  const grant: Etcd["grant"] = async (...args) => {
    await pause(delay);
    return flaky.etcd.grant(...args);
  };
  const ours = etcdLocks({ ...flaky.etcd, grant }, { prefix: `${freshPrefix()}/` });
  stores.push(ours);
  const lock = await ours.lock("a", { ttl: SHORT, wait: LONG });
  delay = 300;
  const moving = expect(lock.ensure(LONG)).rejects.toMatchObject({ code: "LOCK_LOST" });
  expect(await lock.unlock()).toBe("released");
  await moving;
  const [, own = 0n] = flaky.leases;
  await until(async () => (await etcd.timeToLive(own)) === undefined);
});

test("a lock that an operator has released does not come back when its holder asks for more time", async () => {
  const { ours, theirs } = clients();
  const lock = await ours.lock("a", { ttl: SHORT, wait: LONG });
  await theirs.release("a", { fence: lock.fence.toString() });
  const next = await theirs.lock("a", { ttl: LONG, wait: LONG });
  await expect(lock.ensure(LONG)).rejects.toMatchObject({ code: "LOCK_LOST" });
  await next.unlock();
  const last = await theirs.tryLock("a", { ttl: LONG });
  expect(await last?.unlock()).toBe("released");
});

test("an operator's release that arrives late leaves the holder's next lock alone", async () => {
  const { ours, theirs, strike, deliver } = clients();
  const lock = await theirs.lock("a", { ttl: LONG, wait: LONG });
  strike("late");
  await ours.release("a", { fence: lock.fence.toString() });
  expect(await lock.unlock()).toBe("was-lost");
  const next = await theirs.lock("a", { ttl: LONG, wait: LONG });
  await deliver();
  expect(await ours.tryLock("a", { ttl: LONG })).toBeUndefined();
  expect(await next.unlock()).toBe("released");
});

test("operators who raise the generation at once get one each", async () => {
  const { ours, theirs } = clients();
  const raised = await Promise.all(
    [ours, theirs, ours, theirs].map((one) => one.raiseGeneration()),
  );
  expect(raised.sort()).toEqual([1, 2, 3, 4]);
});

/** Opens a store whose next call of each read is never answered, once `silence` was called. */
function silentOnce(prefix: string) {
  const silent = new Set<string>();
  const wrap = <A extends unknown[], T>(name: string, call: (...args: A) => Promise<T>) => {
    return (...args: A): Promise<T> => {
      if (!silent.delete(name)) return call.apply(etcd, args);
      const signal = args.find((arg) => arg instanceof AbortSignal);
      return new Promise((_, reject) => {
        signal?.addEventListener("abort", () => reject(signal.reason));
      });
    };
  };
  const { range, txn, timeToLive } = etcd;
  const store = etcdStore(
    {
      ...faulty(etcd).etcd,
      range: wrap("range", range),
      txn: wrap("txn", txn),
      timeToLive: wrap("timeToLive", timeToLive),
      close: async () => {},
    },
    { prefix },
  );
  const silence = () => {
    for (const name of ["range", "txn", "timeToLive"]) silent.add(name);
  };
  return { store, silence };
}

test.concurrent.each<[string, (store: EtcdStore) => Promise<unknown>]>([
  ["inventory.get", ({ inventory }) => inventory.get("cup")],
  ["inventory.list", ({ inventory }) => inventory.list()],
  ["inventory.history", ({ inventory }) => inventory.history("cup")],
  ["inventory.reservations", ({ inventory }) => inventory.reservations("cup")],
  ["locks.raiseGeneration", ({ locks }) => locks.raiseGeneration()],
  ["locks.inspect", ({ locks }) => locks.inspect("job")],
  ["locks.list", ({ locks }) => locks.list()],
])("a read without an answer is sent again after 2 s: %s", async (_, call) => {
  const { store, silence } = silentOnce(`${freshPrefix()}/`);
  const sku = "cup";
  await store.inventory.set({ sku, quantity: 5, operationId: "set" });
  await store.inventory.reserve({ sku, quantity: 1, operationId: "r", expiresIn: "60s" });
  await using _lock = await store.locks.lock("job", { ttl: LONG, wait: LONG });
  silence();
  expect(await within(20_000, call(store))).toBeTruthy();
});

test("the leader is read again after 2 s without an answer", async () => {
  const { store, silence } = silentOnce(`${freshPrefix()}/`);
  const election = await store.elections.open("leader", { ttl: LONG });
  await election.campaign("a");
  silence();
  expect(await within(20_000, election.leader())).toMatchObject({ value: "a" });
  await election.resign();
  await store.close();
});

test("a list of locks reads each lease once, and no values but those of the holders", async () => {
  const prefix = `${freshPrefix()}/`;
  const flaky = faulty(etcd);
  const values: string[] = [];
  const keep = ({ kvs }: { readonly kvs: readonly { readonly value: string }[] }) =>
    values.push(...kvs.map(({ value }) => value));
  const range: Etcd["range"] = async (...args) => {
    const answer = await flaky.etcd.range(...args);
    keep(answer);
    return answer;
  };
  const locks = etcdLocks({ ...flaky.etcd, range }, { prefix });
  stores.push(locks);
  const large = Array.from({ length: 1_100 }, (_, i) => `${prefix}%lockstep/stock/cup/ledger/${i}`);
  for (let i = 0; i < large.length; i += 100) {
    await etcd.txn({ when: [], do: large.slice(i, i + 100).map((key) => put(key, "large")) });
  }
  const names = Array.from({ length: 130 }, (_, i) => `job ${String(i).padStart(3, "0")}`);
  for (const name of names) await locks.lock(name, { ttl: LONG, wait: LONG });
  const before = flaky.calls.length;
  const listed = await locks.list("");
  expect(listed.map(({ name }) => name)).toEqual(names);
  expect(listed[129]).toMatchObject({ about: { since: expect.any(Date) }, waiters: 0 });
  const count = (call: string) => flaky.calls.slice(before).filter((each) => each === call).length;
  expect(count("timeToLive")).toBe(1);
  expect(count("range")).toBeLessThanOrEqual(4);
  expect(values).not.toContain("large");
});

test("a key without a lease that blocks a lock is its holder, and release removes it", async () => {
  const { prefix, ours } = clients();
  await etcd.txn({ when: [], do: [put(`${prefix}job/config`, "hello")] });
  expect(await ours.list("")).toEqual([]);
  const waiting = ours.lock("job", { ttl: LONG, wait: LONG });
  await until(async () => (await queueOf(etcd, `${prefix}job`)).length === 2);
  const holder = `key "${prefix}job/config" without a lease`;
  const info = await ours.inspect("job");
  expect(info).toMatchObject({ holder, expiresIn: undefined, waiters: 1 });
  expect(await ours.list("")).toMatchObject([{ name: "job", holder, waiters: 1 }]);
  await ours.release("job", { fence: info.fence ?? "" });
  expect(await (await waiting).unlock()).toBe("released");
});

test("a session with less than a third of its ttl left gets no other lock", async () => {
  const flaky = faulty(etcd);
  const ours = etcdLocks(flaky.etcd, { prefix: `${freshPrefix()}/` });
  stores.push(ours);
  await (await ours.lock("a", { ttl: LONG, wait: LONG })).unlock();
  const now = performance.now() + 0.8 * LONG;
  const clock = vi.spyOn(performance, "now").mockImplementation(() => now);
  const lock = await ours.lock("b", { ttl: LONG, wait: LONG });
  clock.mockRestore();
  expect(flaky.leases).toHaveLength(2);
  await lock.unlock();
});

test("a holder notices that its key is gone although the first read fails", async () => {
  stopTimers(LOOK);
  const { ours, theirs, strike } = clients();
  const lock = await ours.lock("a", { ttl: LONG, wait: LONG });
  const prefix = (await queueKeys(lock.fence.token)) ?? "";
  strike("refused");
  await etcd.txn({ when: [], do: [{ op: "remove", keys: prefix }] });
  await until(() => lock.signal.aborted);
  expect(lock.signal.reason).toMatchObject({ why: "taken" });
  const next = await theirs.lock("a", { ttl: LONG, wait: LONG });
  expect(await lock.unlock()).toBe("was-lost");
  expect(await next.unlock()).toBe("released");
});

/** Returns the key that was created at this revision. */
async function queueKeys(revision: bigint): Promise<string | undefined> {
  const { kvs } = await etcd.range({ op: "get", keys: { prefix: "" }, keysOnly: true });
  return kvs.find(({ createRevision }) => createRevision === revision)?.key;
}

test.each(["lease", "key"])(
  "a waiter enters the queue again when its %s is gone, and still gets the lock",
  async (what) => {
    const { prefix, ours, theirs } = clients();
    const holder = await theirs.lock("a", { ttl: LONG, wait: LONG });
    const waiting = ours.lock("a", { ttl: LONG, wait: LONG });
    const second = async () => (await queueOf(etcd, `${prefix}a`))[1];
    const entry = await until(second);
    if (what === "lease") await etcd.revoke(entry.lease);
    else await etcd.txn({ when: [], do: [remove(entry.key)] });
    await until(async () => ((await second())?.createRevision ?? 0n) > entry.createRevision);
    holder.assertHeld();
    await holder.unlock();
    expect(await (await waiting).unlock()).toBe("released");
  },
);

test("a waiter survives an outage of etcd that is longer than its ttl", async () => {
  await using own = await OwnEtcd.like(server);
  await using client = etcdClient({ endpoints: [own.endpoint] });
  const [ours, theirs] = [etcdLocks(client), etcdLocks(client)];
  stores.push(ours, theirs);
  await theirs.lock("a", { ttl: SHORT, wait: LONG });
  const waiting = ours.lock("a", { ttl: SHORT, wait: 60_000 });
  await until(async () => (await queueOf(client, "a")).length === 2);
  await own.stop();
  await pause(1.5 * SHORT);
  await own.start();
  expect(await (await waiting).unlock()).toBe("released");
});

test("maxHold counts from the acquisition of the lock, not from the renewal of its session", async () => {
  const { ours } = clients();
  const first = await ours.lock("first", { ttl: LONG, wait: LONG });
  await pause(1_500);
  const askedAt = performance.now();
  const lock = await ours.lock("second", { ttl: LONG, wait: LONG, maxHold: 1_000 });
  await until(() => lock.signal.aborted);
  // Timers fire up to a millisecond early.
  expect(performance.now() - askedAt).toBeGreaterThan(990);
  expect(lock.signal.reason).toMatchObject({ why: "max-hold" });
  first.assertHeld();
});

test("unlock during a second lock of the same mutex unlocks it", async () => {
  await using session = await EtcdSession.open(etcd, { ttl: LONG });
  const mutex = new EtcdMutex(etcd, session, freshPrefix());
  await mutex.lock();
  void mutex.lock();
  expect(await mutex.unlock()).toBe("released");
  expect(mutex.signal.aborted).toBe(true);
  expect(mutex.revision).toBeUndefined();
});

test("tryLock fails when the session ends meanwhile", async () => {
  const flaky = faulty(etcd);
  const session = await EtcdSession.open(etcd, { ttl: LONG });
  const mutex = new EtcdMutex(flaky.etcd, session, freshPrefix());
  flaky.answered = () => session.orphan();
  await expect(mutex.tryLock()).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
  expect(mutex.signal.aborted).toBe(true);
  const resumed = EtcdMutex.resume(etcd, session, freshPrefix(), 1n);
  expect(resumed.signal.aborted).toBe(true);
});

test("an aborted caller of a mutex does not affect its other callers", async () => {
  await using one = await EtcdSession.open(etcd, { ttl: LONG });
  await using other = await EtcdSession.open(etcd, { ttl: LONG });
  const prefix = freshPrefix();
  const holder = new EtcdMutex(etcd, one, prefix);
  await holder.lock();
  const mutex = new EtcdMutex(etcd, other, prefix);
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

test("a waiting mutex rejects when its client is closed", async () => {
  const client = etcdClient({ endpoints: server.endpoints });
  const session = await EtcdSession.open(client, { ttl: LONG });
  await using other = await EtcdSession.open(etcd, { ttl: LONG });
  const prefix = freshPrefix();
  const holder = new EtcdMutex(etcd, other, prefix);
  await holder.lock();
  const waiting = new EtcdMutex(client, session, prefix).lock();
  const outcome = expect(waiting).rejects.toMatchObject({ code: "STORE_CLOSED" });
  await pause(100);
  await client.close();
  await outcome;
  await holder.unlock();
});

test("tryLock rejects soon after one ttl when the store cannot be reached", async () => {
  const store = etcdLocks(etcdClient({ endpoints: ["127.0.0.1:1"] }), { closeEtcd: true });
  await expect(within(8_000, store.tryLock("a", { ttl: 2_000 }))).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
  });
  await within(10_000, store.close());
});
