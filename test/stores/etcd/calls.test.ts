import { afterAll, expect, test } from "vitest";
import { get } from "../../../core/etcd/etcd.ts";
import { etcdStore, Mutex, openEtcd, Session } from "../../../core/stores/etcd/index.ts";
import { freshPrefix, queueOf } from "../../support/etcd.ts";
import { singleEtcds } from "../../support/etcd-under-test.ts";
import { faulty } from "../../support/faulty-etcd.ts";
import { pause, until } from "../../support/until.ts";

const LONG = 30_000;

const [server = { endpoints: [] }] = singleEtcds();
const etcd = openEtcd(server);

afterAll(() => etcd.close());

/** What a call costs, leases not counted: those are kept alive in the background. */
async function callsOf(
  client: ReturnType<typeof faulty>,
  call: () => Promise<unknown>,
): Promise<readonly string[]> {
  const before = client.calls.length;
  await call();
  return client.calls.slice(before).filter((name) => name !== "keepAlive");
}

const revisionOf = async (prefix: string) => {
  const { revision, kvs } = await etcd.range(get({ prefix }));
  return { revision, keys: kvs.map(({ key }) => key) };
};

test("a mutex costs one call to lock and one to unlock; a busy one is tried with one, and nothing is written", async () => {
  const counted = faulty(etcd);
  const prefix = freshPrefix();
  await using session = await Session.open(counted.etcd, { ttl: LONG });
  await using other = await Session.open(etcd, { ttl: LONG });
  const mutex = new Mutex(counted.etcd, session, prefix);
  expect(await callsOf(counted, () => mutex.lock())).toEqual(["txn"]);
  expect(await callsOf(counted, () => mutex.unlock())).toEqual(["txn"]);
  const holder = new Mutex(etcd, other, prefix);
  await holder.lock();
  const before = await revisionOf(`${prefix}/`);
  expect(await callsOf(counted, () => mutex.tryLock())).toEqual(["txn"]);
  expect((await revisionOf(`${prefix}/`)).keys).toEqual(before.keys);
  expect((await queueOf(etcd, prefix))[0]?.modRevision).toBe(holder.revision);
  await holder.unlock();
});

test("a lock of a store costs the same, once its session is open", async () => {
  const counted = faulty(etcd);
  const prefix = `${freshPrefix()}/`;
  await using ours = etcdStore(counted.etcd, { prefix });
  await using theirs = etcdStore(etcd, { prefix });
  const options = { ttl: LONG, wait: LONG };
  const first = () => ours.withLock("a", options, async () => {});
  expect(await callsOf(counted, first)).toEqual(["grant", "txn", "txn"]);
  expect(await callsOf(counted, first)).toEqual(["txn", "txn"]);
  const lock = await theirs.lock("a", options);
  const before = await revisionOf(prefix);
  const busy = async () => expect(await ours.tryLock("a", { ttl: LONG })).toBeUndefined();
  expect(await callsOf(counted, busy)).toEqual(["txn"]);
  expect((await revisionOf(prefix)).keys).toEqual(before.keys);
  await lock.unlock();
});

test("a release wakes exactly one of 200 that wait", async () => {
  const prefix = freshPrefix();
  const waiters = await Promise.all(
    Array.from({ length: 200 }, async () => {
      const counted = faulty(etcd);
      const session = await Session.open(counted.etcd, { ttl: 120_000 });
      return { counted, session, mutex: new Mutex(counted.etcd, session, prefix) };
    }),
  );
  await using session = await Session.open(etcd, { ttl: 120_000 });
  const holder = new Mutex(etcd, session, prefix);
  await holder.lock();
  const held: Mutex[] = [];
  const locked = waiters.map(({ mutex }) =>
    mutex.lock().then(
      () => held.push(mutex),
      () => {},
    ),
  );
  await until(async () => (await queueOf(etcd, prefix)).length === 201, 30_000);
  // Who waits looks now and then without being told: a round in which that happened is no proof.
  for (let round = 1; ; round += 1) {
    // By then all watches stand.
    await pause(1_500);
    const before = waiters.map(({ counted }) => counted.calls.length);
    await (held.at(-1) ?? holder).unlock();
    await until(() => held.length === round);
    await pause(300);
    const called = waiters.filter(({ counted }, i) => counted.calls.length > (before[i] ?? 0));
    const woken = called.map(({ mutex }) => mutex).filter((mutex) => mutex !== held.at(-2));
    if (woken.length > 1 && round < 5) continue;
    expect(woken).toEqual(held.slice(-1));
    break;
  }
  await Promise.all(waiters.map((waiter) => waiter.session.close()));
  await Promise.all(locked);
}, 60_000);
