import { afterAll, expect, test } from "vitest";
import { get } from "../../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../../core/stores/etcd/client/grpc.ts";
import { etcdLocks } from "../../../core/stores/etcd/locks/index.ts";
import { EtcdMutex } from "../../../core/stores/etcd/locks/mutex.ts";
import { EtcdSession } from "../../../core/stores/etcd/locks/session.ts";
import { freshPrefix, queueOf } from "../../support/etcd.ts";
import { singleEtcds } from "../../support/etcd-under-test.ts";
import { faulty } from "../../support/faulty-etcd.ts";
import { pause, until } from "../../support/until.ts";

const LONG = 30_000;

const [server = { endpoints: [] }] = singleEtcds();
const etcd = etcdClient({ endpoints: server.endpoints });

afterAll(() => etcd.close());

/** Returns the requests of a call, without keepalives, which run in the background. */
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

test("lock and unlock of a mutex take one call each; tryLock on a busy one takes one call and writes nothing", async () => {
  const counted = faulty(etcd);
  const prefix = freshPrefix();
  await using session = await EtcdSession.open(counted.etcd, { ttl: LONG });
  await using other = await EtcdSession.open(etcd, { ttl: LONG });
  const mutex = new EtcdMutex(counted.etcd, session, prefix);
  expect(await callsOf(counted, () => mutex.lock())).toEqual(["txn"]);
  expect(await callsOf(counted, () => mutex.unlock())).toEqual(["txn"]);
  const holder = new EtcdMutex(etcd, other, prefix);
  await holder.lock();
  const before = await revisionOf(`${prefix}/`);
  expect(await callsOf(counted, () => mutex.tryLock())).toEqual(["txn"]);
  expect((await revisionOf(`${prefix}/`)).keys).toEqual(before.keys);
  expect((await queueOf(etcd, prefix))[0]?.modRevision).toBe(holder.revision);
  await holder.unlock();
});

test("lock and unlock of a store take one call each once the session is open", async () => {
  const counted = faulty(etcd);
  const prefix = `${freshPrefix()}/`;
  await using ours = etcdLocks(counted.etcd, { prefix });
  await using theirs = etcdLocks(etcd, { prefix });
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
      const session = await EtcdSession.open(counted.etcd, { ttl: 120_000 });
      return { counted, session, mutex: new EtcdMutex(counted.etcd, session, prefix) };
    }),
  );
  await using session = await EtcdSession.open(etcd, { ttl: 120_000 });
  const holder = new EtcdMutex(etcd, session, prefix);
  await holder.lock();
  const held: EtcdMutex[] = [];
  const locked = waiters.map(({ mutex }) =>
    mutex.lock().then(
      () => held.push(mutex),
      () => {},
    ),
  );
  await until(async () => (await queueOf(etcd, prefix)).length === 201);
  await until(() => waiters.every(({ counted }) => counted.watches.standing > 0));
  await holder.unlock();
  await until(() => held.length === 1);
  // The server notifies all watches of one change at the same time.
  await pause(300);
  const woken = waiters.filter(({ counted }) => counted.watches.told > 0);
  expect(woken.map(({ mutex }) => mutex)).toEqual(held);
  await Promise.all(waiters.map((waiter) => waiter.session.close()));
  await Promise.all(locked);
});
