import { describe, expect, test } from "vitest";
import { put } from "../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";
import { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
import { EtcdMutex } from "../../core/stores/etcd/locks/mutex.ts";
import { EtcdSession } from "../../core/stores/etcd/locks/session.ts";
import { freshPrefix, queueOf } from "../support/etcd.ts";
import { always, anyPrefix, singleEtcds } from "../support/etcd-under-test.ts";
import { GrpcProxy } from "../support/grpc-proxy.ts";
import { stopTimers } from "../support/timers.ts";
import { pause, until } from "../support/until.ts";

const [server] = singleEtcds();
if (!server) throw new Error("there is no etcd server");

describe("behind etcd's grpc-proxy,", () => {
  test("each of many watches gets the changes of its own key", async () => {
    await using proxy = await GrpcProxy.to(server);
    await using etcd = etcdClient({ endpoints: proxy.server.endpoints });
    const prefix = anyPrefix();
    const keys = Array.from({ length: 50 }, (_, at) => `${prefix}${at}`);
    const told = new Map<string, string[]>();
    const ready = new Set<string>();
    const stops = keys.map((key) =>
      etcd.watch(key, {
        ready: () => ready.add(key),
        changed: (changes) =>
          told.set(key, [...(told.get(key) ?? []), ...changes.map((one) => one.key)]),
      }),
    );
    await until(() => ready.size === keys.length);
    for (const [at, stop] of stops.entries()) if (at % 2 === 1) stop();
    for (const key of keys) await etcd.txn(always(put(key, "")));
    const left = keys.filter((_, at) => at % 2 === 0);
    await until(() => told.size === left.length);
    expect([...told].sort()).toEqual(left.map((key) => [key, [key]]).sort());
    for (const stop of stops) stop();
  });

  test("a lock is handed over to the waiters of other clients at once", async () => {
    await using proxy = await GrpcProxy.to(server);
    const prefix = freshPrefix();
    await using one = etcdClient({ endpoints: proxy.server.endpoints });
    await using other = etcdClient({ endpoints: proxy.server.endpoints });
    await using first = await EtcdSession.open(one, { ttl: 30_000 });
    await using second = await EtcdSession.open(other, { ttl: 30_000 });
    const mutexes = [
      new EtcdMutex(one, first, prefix),
      new EtcdMutex(other, second, prefix),
    ] as const;
    await mutexes[0].lock();
    stopTimers(2_000);
    for (let round = 0; round < 6; round += 1) {
      const [holder, waiter] = round % 2 === 0 ? mutexes : ([mutexes[1], mutexes[0]] as const);
      const waiting = waiter.lock();
      await until(async () => (await queueOf(one, prefix)).length === 2);
      await holder.unlock();
      await waiting;
    }
  });

  test("a lock outlives its ttl while it is renewed, and excludes direct clients", async () => {
    await using proxy = await GrpcProxy.to(server);
    await using through = etcdClient({ endpoints: proxy.server.endpoints });
    await using direct = etcdClient({ endpoints: server.endpoints });
    const prefix = `${freshPrefix()}/`;
    await using ours = etcdLocks(through, { prefix });
    await using theirs = etcdLocks(direct, { prefix });
    const lock = await ours.lock("a", { ttl: 6_000, wait: 30_000 });
    await pause(10_000);
    lock.assertHeld();
    expect(await theirs.tryLock("a", { ttl: 6_000 })).toBeUndefined();
    const waiting = theirs.lock("a", { ttl: 6_000, wait: 30_000 });
    expect(await lock.unlock()).toBe("released");
    expect(await (await waiting).unlock()).toBe("released");
  });
});
