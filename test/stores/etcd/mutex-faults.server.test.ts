import { describe, expect, inject, test } from "vitest";
import { StoreRefusedError } from "../../../core/lock/errors.ts";
import { type Etcd, get, put, remove } from "../../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../../core/stores/etcd/client/grpc.ts";
import { EtcdMutex } from "../../../core/stores/etcd/locks/mutex.ts";
import type { EtcdSession } from "../../../core/stores/etcd/locks/session.ts";
import { etcdctl, freshPrefix, queueOf } from "../../support/etcd.ts";
import { FAULTS, type FaultyEtcd, faulty } from "../../support/faulty-etcd.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { stopTimers } from "../../support/timers.ts";
import { pause, until } from "../../support/until.ts";
import { clients, connectBeforeTests, etcd, newMutex, openSession, waiting } from "./mutexes.ts";

/** The shortest time until a waiter reads without a notification. */
const LOOK = 5_000;

describe.each(inject("etcdServers"))("a mutex on $name", (server) => {
  connectBeforeTests(server);

  const openOverProxy = async () => {
    const proxy = await TcpProxy.to(Number(server.endpoints[0]?.split(":").at(-1)));
    const client = etcdClient({ endpoints: [`127.0.0.1:${proxy.port}`] });
    clients.push(client);
    return { proxy, client };
  };

  test("notices the deletion of its key, although etcd has refused a read before", async () => {
    const prefix = freshPrefix();
    let isRefused = false;
    const client: Etcd = {
      ...etcd,
      address: etcd.address,
      txn: (txn, signal) => {
        const isRead = txn.do.every(({ op }) => op === "get");
        if (!isRead || isRefused) return etcd.txn(txn, signal);
        isRefused = true;
        return Promise.reject(new StoreRefusedError(etcd.address, "no permission"));
      },
      watch: (keys, watcher) => etcd.watch(keys, watcher),
    };
    const mutex = new EtcdMutex(client, await openSession(), prefix);
    await mutex.lock();
    await until(() => isRefused);
    await etcd.txn({ when: [], do: [remove(mutex.key)] });
    await until(() => mutex.signal.aborted);
    expect(mutex.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
  });

  test("is not acquired by the third waiter when the second one gives up", async () => {
    const prefix = freshPrefix();
    const { mutex: first } = await newMutex(prefix);
    await first.lock();
    const second = await waiting(prefix);
    const third = await waiting(prefix);
    await second.session.close();
    await expect(second.locked).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    await until(async () => (await queueOf(etcd, prefix)).length === 2);
    // The third one reads the queue after the removal of the second one.
    await pause(500);
    expect(third.isHeld()).toBe(false);
    await first.unlock();
    await third.locked;
    await third.mutex.unlock();
  });

  test("is never acquired by a waiter whose session has ended, which rejects at once", async () => {
    const prefix = freshPrefix();
    const { mutex: holder } = await newMutex(prefix);
    await holder.lock();
    stopTimers(LOOK);
    const waiter = await waiting(prefix);
    await waiter.session.close();
    await expect(waiter.locked).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    expect(holder.signal.aborted).toBe(false);
    await expect(waiter.mutex.lock()).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    await expect(waiter.mutex.tryLock()).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    await holder.unlock();
  });

  test("is never acquired by a waiter whose lease was revoked, or whose key was deleted, which rejects at once", async () => {
    const prefix = freshPrefix();
    const { mutex: holder } = await newMutex(prefix);
    await holder.lock();
    stopTimers(LOOK);
    const revoked = await waiting(prefix);
    await etcdctl(server, "lease", "revoke", revoked.session.id.toString(16));
    await expect(revoked.locked).rejects.toMatchObject({
      code: "SESSION_EXPIRED",
    });
    const deleted = await waiting(prefix);
    await etcdctl(server, "del", deleted.mutex.key);
    await expect(deleted.locked).rejects.toMatchObject({
      code: "SESSION_EXPIRED",
    });
    expect(holder.signal.aborted).toBe(false);
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
    await holder.unlock();
  });

  test("is never acquired by a waiter whose key is deleted together with its predecessor", async () => {
    const prefix = freshPrefix();
    const { mutex: holder } = await newMutex(prefix);
    await holder.lock();
    const waiter = await waiting(prefix);
    await etcd.txn({ when: [], do: [remove({ prefix: `${prefix}/` })] });
    await expect(waiter.locked).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    expect(waiter.isHeld()).toBe(false);
  });

  test("aborts its signal at once when its key is deleted or its lease revoked", async () => {
    stopTimers(LOOK);
    for (const end of ["key", "lease"]) {
      const { mutex, session } = await newMutex(freshPrefix());
      await mutex.lock();
      await pause(100);
      expect(mutex.signal.aborted).toBe(false);
      if (end === "key") await etcdctl(server, "del", mutex.key);
      else await etcdctl(server, "lease", "revoke", session.id.toString(16));
      await until(() => mutex.signal.aborted);
      expect(mutex.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
      expect(await mutex.unlock()).toBe("was-lost");
    }
  });

  test("is acquired by a waiter across compactions", async () => {
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

  test("is acquired by a waiter across broken connections, which misses no release in between", async () => {
    stopTimers(LOOK);
    for (const delay of [0, 1, 3, 10, 60]) {
      const prefix = freshPrefix();
      const { mutex: holder } = await newMutex(prefix);
      await holder.lock();
      const { proxy, client } = await openOverProxy();
      const mutex = new EtcdMutex(client, await openSession(client), prefix);
      const locked = mutex.lock();
      await until(async () => (await queueOf(etcd, prefix)).length === 2);
      await pause(delay);
      proxy.cut();
      await holder.unlock();
      proxy.mend();
      await locked;
      expect(await mutex.unlock()).toBe("released");
      await client.close();
      await proxy.close();
    }
  });

  test("is not acquired by an aborted wait, whichever call is pending, which leaves no key behind", async () => {
    const holderSession = await openSession();
    const session = await openSession();
    let points = 0;
    for (const when of ["before", "after"] as const) {
      for (let n = 1, reached = true; reached; n += 1) {
        reached = false;
        const prefix = freshPrefix();
        const holder = new EtcdMutex(etcd, holderSession, prefix);
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
        const mutex = new EtcdMutex(flaky.etcd, session, prefix);
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
    // One call to enter, at least two reads, and one to leave.
    expect(points).toBeGreaterThanOrEqual(6);
  });

  describe.each(FAULTS)("whose calls may meet the fault %s", (fault) => {
    /** Locks and unlocks with the fault at each call, and as many in a row: one run for each. */
    const runs = async (
      times: number,
      run: (flaky: FaultyEtcd, prefix: string, session: EtcdSession) => Promise<void>,
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
        await flaky.deliver();
        expect(await queueOf(etcd, prefix)).toEqual([]);
      }
    };

    test.each([1, 2, 3])(
      "leaves no key behind unless it is held, %i times in a row",
      async (times) => {
        await runs(times, async (flaky, prefix, session) => {
          const mutex = new EtcdMutex(flaky.etcd, session, prefix);
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

    test("is acquired in turn after another holder", async () => {
      await runs(1, async (flaky, prefix, session) => {
        const { mutex: holder, session: other } = await newMutex(prefix);
        await holder.lock();
        const mutex = new EtcdMutex(flaky.etcd, session, prefix);
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
});
