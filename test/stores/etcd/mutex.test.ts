import { afterAll, afterEach, beforeAll, describe, expect, inject, test, vi } from "vitest";
import { type Etcd, get, put, remove } from "../../../core/etcd/etcd.ts";
import { Mutex, type MutexOptions, openEtcd, Session } from "../../../core/stores/etcd/index.ts";
import { etcdctl, freshPrefix, queueOf } from "../../support/etcd.ts";
import { FAULTS, type FaultyEtcd, faulty, LATE } from "../../support/faulty-etcd.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { pause, until, within } from "../../support/until.ts";

/** A ttl that no pause of a busy machine outlasts. */
const LONG = 30_000;

/** What is told takes milliseconds; what is only found by looking now and then takes longer than this. */
const AT_ONCE = 4_000;

describe.each(inject("etcdServers"))("a mutex on $name", (server) => {
  let etcd: Etcd;
  const sessions: Session[] = [];
  const clients: Etcd[] = [];

  beforeAll(() => {
    etcd = openEtcd(server);
  });

  afterEach(async () => {
    await Promise.all(sessions.splice(0).map((session) => session.close()));
    await Promise.all(clients.splice(0).map((client) => client.close()));
  });

  afterAll(() => etcd.close());

  const openSession = async (on = etcd, ttl = LONG) => {
    const session = await Session.open(on, { ttl });
    sessions.push(session);
    return session;
  };

  /** A mutex with a session of its own. */
  const newMutex = async (prefix: string, options?: MutexOptions) => {
    const session = await openSession();
    return { mutex: new Mutex(etcd, session, prefix, options), session };
  };

  /** A waiter that stands in line already. */
  const waiting = async (prefix: string) => {
    const made = await newMutex(prefix);
    const before = (await queueOf(etcd, prefix)).length;
    const abort = new AbortController();
    let held = false;
    const locked = made.mutex.lock({ signal: abort.signal }).then(() => {
      held = true;
    });
    locked.catch(() => {});
    await until(async () => (await queueOf(etcd, prefix)).length > before);
    return { ...made, locked, abort, isHeld: () => held };
  };

  const openOverProxy = async () => {
    const proxy = await TcpProxy.to(Number(server.endpoints[0]?.split(":").at(-1)));
    const client = openEtcd({ endpoints: [`127.0.0.1:${proxy.port}`] });
    clients.push(client);
    return { proxy, client };
  };

  test("has one holder at a time among five, and all of them get their turn", async () => {
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

  test("is got by one of five that try, and the others do not stand in line", async () => {
    const prefix = freshPrefix();
    const mutexes = await Promise.all([1, 2, 3, 4, 5].map(() => newMutex(prefix)));
    const got = await Promise.all(mutexes.map(({ mutex }) => mutex.tryLock()));
    expect(got.filter(Boolean)).toHaveLength(1);
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
    expect(await mutexes.find((_, i) => got[i])?.mutex.unlock()).toBe("released");
  });

  test("has Go's keys: the prefix as it is, a slash, and the lease in hex", async () => {
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

  test("is locked again at no cost by the one that holds it", async () => {
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

  test("excludes another one of the same session, which gets it next", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const [first, second] = [new Mutex(etcd, session, prefix), new Mutex(etcd, session, prefix)];
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

  test("shares its key with another one of the same session where it is to be reentrant, as in Go", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const make = () => new Mutex(etcd, session, prefix, { reentrant: true });
    const [first, second] = [make(), make()];
    await first.lock();
    await second.lock();
    expect(second.revision).toBe(first.revision);
    expect(await first.unlock()).toBe("released");
    expect(await queueOf(etcd, prefix)).toEqual([]);
    expect(await second.unlock()).toBe("was-lost");
  });

  test("of one session does not keep those of others waiting for ever", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    let stop = false;
    let turns = 0;
    const busy = Array.from({ length: 4 }, async () => {
      const mutex = new Mutex(etcd, session, prefix);
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

  test("is not got by the third in line when the second gives up", async () => {
    const prefix = freshPrefix();
    const { mutex: first } = await newMutex(prefix);
    await first.lock();
    const second = await waiting(prefix);
    const third = await waiting(prefix);
    await second.session.close();
    await expect(second.locked).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    await until(async () => (await queueOf(etcd, prefix)).length === 2);
    await pause(100);
    expect(third.isHeld()).toBe(false);
    await first.unlock();
    await third.locked;
    await third.mutex.unlock();
  });

  test("is never got by a waiter whose session has ended, and it is told at once", async () => {
    const prefix = freshPrefix();
    const { mutex: holder } = await newMutex(prefix);
    await holder.lock();
    const waiter = await waiting(prefix);
    await waiter.session.close();
    await expect(within(AT_ONCE, waiter.locked)).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    expect(holder.signal.aborted).toBe(false);
    await expect(waiter.mutex.lock()).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    await expect(waiter.mutex.tryLock()).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    await holder.unlock();
  });

  test("is never got by a waiter whose lease was revoked, or whose key was deleted, and it is told at once", async () => {
    const prefix = freshPrefix();
    const { mutex: holder } = await newMutex(prefix);
    await holder.lock();
    const revoked = await waiting(prefix);
    await etcdctl(server, "lease", "revoke", revoked.session.id.toString(16));
    await expect(within(AT_ONCE, revoked.locked)).rejects.toMatchObject({
      code: "SESSION_EXPIRED",
    });
    const deleted = await waiting(prefix);
    await etcdctl(server, "del", deleted.mutex.key);
    await expect(within(AT_ONCE, deleted.locked)).rejects.toMatchObject({
      code: "SESSION_EXPIRED",
    });
    expect(holder.signal.aborted).toBe(false);
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
    await holder.unlock();
  });

  test("is never got by a waiter whose key goes together with the one before it", async () => {
    const prefix = freshPrefix();
    const { mutex: holder } = await newMutex(prefix);
    await holder.lock();
    const waiter = await waiting(prefix);
    await etcd.txn({ when: [], do: [remove({ prefix: `${prefix}/` })] });
    await expect(waiter.locked).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    expect(waiter.isHeld()).toBe(false);
  });

  test("tells its holder at once when its key is deleted or its lease revoked", async () => {
    for (const end of ["key", "lease"]) {
      const { mutex, session } = await newMutex(freshPrefix());
      await mutex.lock();
      await pause(100);
      expect(mutex.signal.aborted).toBe(false);
      if (end === "key") await etcdctl(server, "del", mutex.key);
      else await etcdctl(server, "lease", "revoke", session.id.toString(16));
      await until(() => mutex.signal.aborted, 5_000);
      expect(mutex.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
      expect(await mutex.unlock()).toBe("was-lost");
    }
  });

  test("that holds nothing cannot be unlocked", async () => {
    const { mutex } = await newMutex(freshPrefix());
    await expect(mutex.unlock()).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(() => mutex.isOwner()).toThrow(expect.objectContaining({ code: "LOCK_RELEASED" }));
    await mutex.lock();
    await mutex.unlock();
    await expect(mutex.unlock()).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(mutex.revision).toBeUndefined();
  });

  test("was not lost when it is given back, however soon its key is seen to be gone", async () => {
    const { mutex } = await newMutex(freshPrefix());
    for (let i = 0; i < 5; i += 1) {
      await mutex.lock();
      const { signal } = mutex;
      await pause(100);
      expect(await mutex.unlock()).toBe("released");
      expect(signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    }
  });

  test("is given back once by those who do so at the same time", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const [first, second, third] = [1, 2, 3].map(() => new Mutex(etcd, session, prefix)) as [
      Mutex,
      Mutex,
      Mutex,
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

  test("is locked anew by one that asks while it is given back", async () => {
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

  test("that waits leaves the line when it is unlocked", async () => {
    const prefix = freshPrefix();
    const { mutex: holder } = await newMutex(prefix);
    await holder.lock();
    const waiter = await waiting(prefix);
    expect(await waiter.mutex.unlock()).toBe("released");
    await expect(waiter.locked).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
    expect(await holder.unlock()).toBe("released");
  });

  test("that was released late does not release a later one of the same session", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const mutex = new Mutex(etcd, session, prefix);
    await mutex.lock();
    const stale = Mutex.resume(etcd, session, prefix, mutex.revision ?? 0n);
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
    const client = openEtcd(server);
    clients.push(client);
    const resumed = await Session.open(client, { lease: session.id });
    sessions.push(resumed);
    const again = Mutex.resume(client, resumed, prefix, revision);
    expect(again).toMatchObject({ key: mutex.key, revision });
    const owner = await client.txn({ when: [again.isOwner()], do: [] });
    expect(owner.succeeded).toBe(true);
    await again.lock();
    expect(again.revision).toBe(revision);
    expect(await again.unlock()).toBe("released");
    expect(await queueOf(etcd, prefix)).toEqual([]);
  });

  test("guards a caller's own transaction for as long as it is held", async () => {
    const prefix = freshPrefix();
    const { mutex } = await newMutex(prefix);
    await mutex.lock();
    const guarded = { when: [mutex.isOwner()], do: [put(`${prefix}-stock`, "1")] };
    expect((await etcd.txn(guarded)).succeeded).toBe(true);
    await mutex.unlock();
    expect((await etcd.txn(guarded)).succeeded).toBe(false);
    await mutex.lock();
    // It is held again, but not since then.
    expect((await etcd.txn(guarded)).succeeded).toBe(false);
    await mutex.unlock();
    await etcd.txn({ when: [], do: [remove(`${prefix}-stock`)] });
  });

  test("that is unlocked and locked again goes behind who waits, although its key has the same name", async () => {
    const prefix = freshPrefix();
    const [one, other] = [await newMutex(prefix), await newMutex(prefix)];
    const last = { who: "", run: 0, longest: 0 };
    const contend = async (who: string, mutex: Mutex) => {
      for (let i = 0; i < 100; i += 1) {
        await mutex.lock();
        last.run = last.who === who ? last.run + 1 : 1;
        last.who = who;
        last.longest = Math.max(last.longest, last.run);
        // The other one certainly stands in line by then.
        await until(async () => (await queueOf(etcd, prefix)).length === 2 || i > 98);
        await mutex.unlock();
      }
    };
    await Promise.all([contend("one", one.mutex), contend("other", other.mutex)]);
    expect(last.longest).toBeLessThanOrEqual(3);
  });

  test("is waited for across compactions", async () => {
    const prefix = freshPrefix();
    const { mutex: holder } = await newMutex(prefix);
    await holder.lock();
    const waiter = await waiting(prefix);
    for (let i = 0; i < 20; i += 1) await etcd.txn({ when: [], do: [put(`${prefix}-x`, `${i}`)] });
    const { revision } = await etcd.range(get(`${prefix}-x`));
    await etcdctl(server, "compact", String(revision));
    await pause(50);
    expect(waiter.isHeld()).toBe(false);
    await holder.unlock();
    await waiter.locked;
    await waiter.mutex.unlock();
    await etcd.txn({ when: [], do: [remove(`${prefix}-x`)] });
  });

  test("is waited for across broken connections, and a release in between is not missed", async () => {
    for (const delay of [0, 1, 3, 10, 60]) {
      const prefix = freshPrefix();
      const { mutex: holder } = await newMutex(prefix);
      await holder.lock();
      const { proxy, client } = await openOverProxy();
      const mutex = new Mutex(client, await openSession(client), prefix);
      const locked = mutex.lock();
      await until(async () => (await queueOf(etcd, prefix)).length === 2);
      await pause(delay);
      proxy.cut();
      await holder.unlock();
      proxy.mend();
      await within(AT_ONCE, locked);
      expect(await mutex.unlock()).toBe("released");
      await client.close();
      await proxy.close();
    }
  });

  test("is not got when the wait is aborted, whichever call is under way, and nothing stays behind", async () => {
    const holderSession = await openSession();
    const session = await openSession();
    let points = 0;
    for (const when of ["before", "after"] as const) {
      for (let n = 1, reached = true; reached; n += 1) {
        reached = false;
        const prefix = freshPrefix();
        const holder = new Mutex(etcd, holderSession, prefix);
        await holder.lock();
        const abort = new AbortController();
        const flaky = faulty(etcd);
        const reason = { because: n };
        const strike = (_: string, call: number) => {
          if (call !== n) return undefined;
          reached = true;
          abort.abort(reason);
          return undefined;
        };
        if (when === "before") flaky.decide = strike;
        else flaky.answered = strike;
        const mutex = new Mutex(flaky.etcd, session, prefix);
        const outcome = mutex.lock({ signal: abort.signal }).then(
          () => undefined,
          (caught) => caught,
        );
        await pause(20);
        await holder.unlock();
        const error = await outcome;
        if (error !== undefined) expect(error).toBe(reason);
        else await mutex.unlock();
        expect(await queueOf(etcd, prefix)).toEqual([]);
        if (reached) points += 1;
      }
    }
    // Entering, at least two looks, and leaving.
    expect(points).toBeGreaterThanOrEqual(6);
  });

  describe.each(FAULTS)("whose calls may meet the fault %s", (fault) => {
    /** Locks and unlocks with the fault at every call, and so often in a row: one run for each. */
    const runs = async (
      times: number,
      run: (flaky: FaultyEtcd, prefix: string, session: Session) => Promise<void>,
    ) => {
      for (let n = 1, reached = true; reached && n < 20; n += 1) {
        reached = false;
        const flaky = faulty(etcd);
        flaky.decide = (_, call) => {
          if (call < n || call >= n + times) return undefined;
          reached = true;
          return fault;
        };
        const prefix = freshPrefix();
        const session = await openSession();
        await run(flaky, prefix, session);
        await session.close();
        if (fault === "late") await pause(LATE + 50);
        expect(await queueOf(etcd, prefix)).toEqual([]);
      }
    };

    test.each([1, 2, 3])(
      "is held or not, and never left behind, %i times in a row",
      async (times) => {
        await runs(times, async (flaky, prefix, session) => {
          const mutex = new Mutex(flaky.etcd, session, prefix);
          try {
            await mutex.lock();
          } catch (error) {
            expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" });
            expect(await queueOf(etcd, prefix)).toEqual([]);
            return;
          }
          const [first] = await queueOf(etcd, prefix);
          expect(first).toMatchObject({ key: mutex.key, createRevision: mutex.revision });
          expect(await mutex.unlock()).toBe("released");
          expect(await queueOf(etcd, prefix)).toEqual([]);
        });
      },
    );

    test("is got in turn when somebody else holds it", async () => {
      await runs(1, async (flaky, prefix, session) => {
        const { mutex: holder, session: other } = await newMutex(prefix);
        await holder.lock();
        const mutex = new Mutex(flaky.etcd, session, prefix);
        const locked = mutex.lock().then(
          () => true,
          (error) => {
            expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" });
            return false;
          },
        );
        await pause(20);
        expect(mutex.revision).toBeUndefined();
        await holder.unlock();
        if (await locked) expect(await mutex.unlock()).toBe("released");
        await other.close();
      });
    });
  });

  test("leaves no timer behind", async () => {
    const { mutex, session } = await newMutex(freshPrefix());
    const spy = vi.spyOn(globalThis, "setTimeout");
    const cleared = vi.spyOn(globalThis, "clearTimeout");
    await mutex.lock();
    await mutex.unlock();
    const open = spy.mock.results
      .map(({ value }) => value)
      .filter((timer) => !cleared.mock.calls.some(([one]) => one === timer));
    expect(open).toEqual([]);
    vi.restoreAllMocks();
    await session.close();
  });
});

const [first] = inject("etcdServers");
if (!first) throw new Error("there is no etcd server");

test("10,000 hand-overs between two sessions have rising tokens", async () => {
  await using etcd = openEtcd(first);
  const prefix = freshPrefix();
  let last = 0n;
  let count = 0;
  const contend = async () => {
    await using session = await Session.open(etcd, { ttl: LONG });
    const mutex = new Mutex(etcd, session, prefix);
    for (let i = 0; i < 5_000; i += 1) {
      await mutex.lock();
      const { revision = 0n } = mutex;
      expect(revision > last).toBe(true);
      last = revision;
      count += 1;
      await mutex.unlock();
    }
  };
  await Promise.all([contend(), contend()]);
  expect(count).toBe(10_000);
}, 600_000);
