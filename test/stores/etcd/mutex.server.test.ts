import { AsyncLocalStorage } from "node:async_hooks";
import { describe, expect, inject, onTestFinished, test, vi } from "vitest";
import { put, remove } from "../../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../../core/stores/etcd/client/grpc.ts";
import { EtcdMutex } from "../../../core/stores/etcd/locks/mutex.ts";
import { EtcdSession } from "../../../core/stores/etcd/locks/session.ts";
import { freshPrefix, queueOf } from "../../support/etcd.ts";
import { EVERY_VERSION } from "../../support/matrix.ts";
import { pause, until } from "../../support/until.ts";
import {
  clients,
  connectBeforeTests,
  etcd,
  LONG,
  newMutex,
  openSession,
  sessions,
  waiting,
} from "./mutexes.ts";

describe.each(inject("etcdServers"))("a mutex on $name", (server) => {
  connectBeforeTests(server);

  test("has one holder at a time among five, and each of them gets its turn", async () => {
    const prefix = freshPrefix();
    let holders = 0;
    let turns = 0;
    const contender = async () => {
      const { mutex } = await newMutex(prefix);
      await mutex.lock();
      holders += 1;
      expect(holders).toBe(1);
      await pause(5);
      turns += 1;
      holders -= 1;
      expect(await mutex.unlock()).toBe("released");
    };
    await Promise.all([1, 2, 3, 4, 5].map(contender));
    expect(turns).toBe(5);
    expect(await queueOf(etcd, prefix)).toEqual([]);
  });

  test("is acquired by one of five that try, and the others do not enter the queue", async () => {
    const prefix = freshPrefix();
    const mutexes = await Promise.all([1, 2, 3, 4, 5].map(() => newMutex(prefix)));
    const got = await Promise.all(mutexes.map(({ mutex }) => mutex.tryLock()));
    expect(got.filter(Boolean)).toHaveLength(1);
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
    expect(await mutexes.find((_, i) => got[i])?.mutex.unlock()).toBe("released");
  });

  test("has Go's keys: the literal prefix, a slash, and the lease in hex", async () => {
    for (const prefix of [freshPrefix(), `/${freshPrefix()}/`, `${freshPrefix()}/ä b%`]) {
      const { mutex, session } = await newMutex(prefix);
      await mutex.lock();
      const [kv] = await queueOf(etcd, prefix);
      expect(mutex.key).toBe(`${prefix}/${session.id.toString(16)}`);
      expect(kv).toMatchObject({
        key: mutex.key,
        value: "",
        lease: session.id,
        createRevision: mutex.revision,
      });
      await mutex.unlock();
    }
  });

  test("is locked again by its holder without a request", async () => {
    const prefix = freshPrefix();
    const { mutex } = await newMutex(prefix);
    await mutex.lock();
    const { revision } = mutex;
    await mutex.lock();
    expect(await mutex.tryLock()).toBe(true);
    expect(mutex.revision).toBe(revision);
    expect(await mutex.unlock()).toBe("released");
    expect(await queueOf(etcd, prefix)).toEqual([]);
  });

  test("excludes another mutex of the same session, which gets the lock next", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const [first, second] = [
      new EtcdMutex(etcd, session, prefix),
      new EtcdMutex(etcd, session, prefix),
    ];
    await first.lock();
    expect(await second.tryLock()).toBe(false);
    let held = false;
    const locked = second.lock().then(() => {
      held = true;
    });
    await pause(50);
    expect(held).toBe(false);
    await first.unlock();
    await locked;
    expect(first.revision).toBeUndefined();
    expect(first.signal.aborted).toBe(true);
    expect(second.signal.aborted).toBe(false);
    await second.unlock();
    expect(await queueOf(etcd, prefix)).toEqual([]);
  });

  test("shares its key with another mutex of the same session if reentrant, as in Go", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const make = () => new EtcdMutex(etcd, session, prefix, { reentrant: true });
    const [first, second] = [make(), make()];
    await first.lock();
    await second.lock();
    expect(second.revision).toBe(first.revision);
    expect(await first.unlock()).toBe("released");
    expect(await queueOf(etcd, prefix)).toEqual([]);
    expect(await second.unlock()).toBe("was-lost");
  });

  test("is not acquired by an attempt while another mutex of its session waits for it", async () => {
    const prefix = freshPrefix();
    const { mutex: holder } = await newMutex(prefix);
    await holder.lock();
    const session = await openSession();
    const make = () => new EtcdMutex(etcd, session, prefix, { reentrant: true });
    const [waiter, other] = [make(), make()];
    const locked = waiter.lock();
    await until(async () => (await queueOf(etcd, prefix)).length === 2);
    expect(await other.tryLock()).toBe(false);
    expect(other.signal.aborted).toBe(true);
    await holder.unlock();
    await locked;
    expect(await other.tryLock()).toBe(true);
    expect(other.revision).toBe(waiter.revision);
  });

  test("of one session does not starve those of other sessions", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    let stop = false;
    let turns = 0;
    const busy = Array.from({ length: 4 }, async () => {
      const mutex = new EtcdMutex(etcd, session, prefix);
      while (!stop) {
        await mutex.lock();
        turns += 1;
        await mutex.unlock();
      }
    });
    const { mutex } = await newMutex(prefix);
    await mutex.lock();
    stop = true;
    await mutex.unlock();
    await Promise.all(busy);
    expect(turns).toBeGreaterThan(0);
  });

  test("that is not held cannot be unlocked", async () => {
    const { mutex } = await newMutex(freshPrefix());
    await expect(mutex.unlock()).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(() => mutex.isOwner()).toThrow(expect.objectContaining({ code: "LOCK_RELEASED" }));
    await mutex.lock();
    await mutex.unlock();
    await expect(mutex.unlock()).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(mutex.revision).toBeUndefined();
  });

  test("that is unlocked was not lost, however soon its key is seen to be gone", async () => {
    const { mutex } = await newMutex(freshPrefix());
    for (let i = 0; i < 5; i += 1) {
      await mutex.lock();
      const { signal } = mutex;
      await pause(100);
      expect(await mutex.unlock()).toBe("released");
      expect(signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    }
  });

  test("is released once by concurrent calls of unlock", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const [first, second, third] = [1, 2, 3].map(() => new EtcdMutex(etcd, session, prefix)) as [
      EtcdMutex,
      EtcdMutex,
      EtcdMutex,
    ];
    for (const waits of [false, true]) {
      await first.lock();
      const locked = waits ? [second, third].map((mutex) => mutex.lock()) : [];
      const unlocked = [first.unlock(), first.unlock()];
      if (!waits) locked.push(...[second, third].map((mutex) => mutex.lock()));
      expect(await Promise.all(unlocked)).toEqual(["released", "released"]);
      await locked[0];
      await pause(50);
      expect(third.revision).toBeUndefined();
      await second.unlock();
      await locked[1];
      await third.unlock();
    }
  });

  test("is locked anew by a call of lock during unlock", async () => {
    const prefix = freshPrefix();
    const { mutex } = await newMutex(prefix);
    await mutex.lock();
    const { revision = 0n } = mutex;
    const unlocked = mutex.unlock();
    const [, got] = await Promise.all([mutex.lock(), mutex.tryLock()]);
    expect(await unlocked).toBe("released");
    expect(got).toBeTypeOf("boolean");
    expect(mutex.revision).toBeGreaterThan(revision);
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
    expect(await mutex.unlock()).toBe("released");
  });

  test("goes to one waiter of its session, however often it is unlocked during a call of lock", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const [first, ...others] = [1, 2, 3].map(() => new EtcdMutex(etcd, session, prefix)) as [
      EtcdMutex,
      ...EtcdMutex[],
    ];
    await first.lock();
    const again = first.lock();
    const unlocked = Promise.all([first.unlock(), first.unlock()]);
    await new Promise(setImmediate);
    const locked = others.map((mutex) => mutex.lock());
    await again;
    expect(await unlocked).toEqual(["released", "released"]);
    await Promise.race(locked);
    await pause(100);
    expect(others.filter(({ signal }) => !signal.aborted)).toHaveLength(1);
    for (const mutex of others) {
      await mutex.lock();
      await mutex.unlock();
    }
  });

  test("is free after calls of unlock, lock and unlock at once", async () => {
    const prefix = freshPrefix();
    const { mutex } = await newMutex(prefix);
    await mutex.lock();
    const calls = await Promise.allSettled([mutex.unlock(), mutex.lock(), mutex.unlock()]);
    expect(calls).toMatchObject([
      { value: "released" },
      { reason: { code: "LOCK_RELEASED" } },
      { value: "released" },
    ]);
    expect(await queueOf(etcd, prefix)).toEqual([]);
  });

  test("that waits leaves the queue when it is unlocked", async () => {
    const prefix = freshPrefix();
    const { mutex: holder } = await newMutex(prefix);
    await holder.lock();
    const waiter = await waiting(prefix);
    expect(await waiter.mutex.unlock()).toBe("released");
    await expect(waiter.locked).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
    expect(await holder.unlock()).toBe("released");
  });

  test("leaves no key when it is unlocked together with the next one of its session, which waits for it", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const [first, second] = [1, 2].map(() => new EtcdMutex(etcd, session, prefix)) as [
      EtcdMutex,
      EtcdMutex,
    ];
    await first.lock();
    const locked = expect(second.lock()).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    await pause(50);
    const unlocked = await Promise.all([first.unlock(), second.unlock()]);
    expect(unlocked).toEqual(["released", "released"]);
    await locked;
    expect(await queueOf(etcd, prefix)).toEqual([]);
    const { mutex: other } = await newMutex(prefix);
    expect(await other.tryLock()).toBe(true);
    await other.unlock();
  });

  test("that is released late does not release a later one of the same session", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const mutex = new EtcdMutex(etcd, session, prefix);
    await mutex.lock();
    const stale = EtcdMutex.resume(etcd, session, prefix, mutex.revision ?? 0n);
    await mutex.unlock();
    await mutex.lock();
    expect(await stale.unlock()).toBe("was-lost");
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
    expect(await mutex.unlock()).toBe("released");
  });

  test("is resumed from its revision by another client with the same lease", async () => {
    const prefix = freshPrefix();
    const { mutex, session } = await newMutex(prefix);
    await mutex.lock();
    const { revision = 0n } = mutex;
    session.orphan();
    const client = etcdClient({ endpoints: server.endpoints });
    clients.push(client);
    const resumed = await EtcdSession.open(client, { lease: session.id });
    sessions.push(resumed);
    const again = EtcdMutex.resume(client, resumed, prefix, revision);
    expect(again).toMatchObject({ key: mutex.key, revision });
    const owner = await client.txn({ when: [again.isOwner()], do: [] });
    expect(owner.succeeded).toBe(true);
    await again.lock();
    expect(again.revision).toBe(revision);
    expect(await again.unlock()).toBe("released");
    expect(await queueOf(etcd, prefix)).toEqual([]);
  });

  test("guards the caller's own transaction as long as it is held", async () => {
    const prefix = freshPrefix();
    const { mutex } = await newMutex(prefix);
    await mutex.lock();
    const guarded = { when: [mutex.isOwner()], do: [put(`${prefix}-stock`, "1")] };
    expect((await etcd.txn(guarded)).succeeded).toBe(true);
    await mutex.unlock();
    expect((await etcd.txn(guarded)).succeeded).toBe(false);
    await mutex.lock();
    // The mutex is held again, under another revision.
    expect((await etcd.txn(guarded)).succeeded).toBe(false);
    await mutex.unlock();
    await etcd.txn({ when: [], do: [remove(`${prefix}-stock`)] });
  });

  test("that is unlocked and locked again queues behind the waiters, although its key has the same name", async () => {
    const prefix = freshPrefix();
    const [one, other] = [await newMutex(prefix), await newMutex(prefix)];
    const last = { who: "", run: 0, longest: 0 };
    const contend = async (who: string, mutex: EtcdMutex) => {
      for (let i = 0; i < 100; i += 1) {
        await mutex.lock();
        last.run = last.who === who ? last.run + 1 : 1;
        last.who = who;
        last.longest = Math.max(last.longest, last.run);
        // The other mutex is certainly in the queue by then.
        await until(async () => (await queueOf(etcd, prefix)).length === 2 || i > 98);
        await mutex.unlock();
      }
    };
    await Promise.all([contend("one", one.mutex), contend("other", other.mutex)]);
    expect(last.longest).toBeLessThanOrEqual(3);
  });

  test("leaves no timer behind", async () => {
    const { mutex, session } = await newMutex(freshPrefix());
    // The session and the client have timers as well, which start in between when they are due.
    const ours = new AsyncLocalStorage<true>();
    const open = new Set<unknown>();
    const { setTimeout, clearTimeout } = globalThis;
    vi.spyOn(globalThis, "setTimeout").mockImplementation(((...args: [() => void]) => {
      if (!ours.getStore()) return setTimeout(...args);
      // Never fires: on a busy machine, a timer that is due would start others.
      const timer = {};
      open.add(timer);
      return timer;
    }) as typeof setTimeout);
    vi.spyOn(globalThis, "clearTimeout").mockImplementation((timer) => {
      if (!open.delete(timer)) clearTimeout(timer);
    });
    onTestFinished(() => void vi.restoreAllMocks());
    await ours.run(true, async () => {
      await mutex.lock();
      await mutex.unlock();
    });
    expect([...open]).toEqual([]);
    await session.close();
  });
});

const [first] = inject("etcdServers");
if (!first) throw new Error("there is no etcd server");

const HAND_OVERS = EVERY_VERSION ? 10_000 : 500;

test(`${HAND_OVERS} hand-overs between two sessions have rising tokens`, async () => {
  await using etcd = etcdClient({ endpoints: first.endpoints });
  const prefix = freshPrefix();
  let last = 0n;
  let count = 0;
  const contend = async () => {
    await using session = await EtcdSession.open(etcd, { ttl: LONG });
    const mutex = new EtcdMutex(etcd, session, prefix);
    for (let i = 0; i < HAND_OVERS / 2; i += 1) {
      await mutex.lock();
      const { revision = 0n } = mutex;
      expect(revision > last).toBe(true);
      last = revision;
      count += 1;
      await mutex.unlock();
    }
  };
  await Promise.all([contend(), contend()]);
  expect(count).toBe(HAND_OVERS);
}, 600_000);
