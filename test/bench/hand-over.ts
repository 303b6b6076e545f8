import { randomUUID } from "node:crypto";
import { type Etcd, put, remove } from "../../core/stores/etcd/client/etcd.ts";
import { EtcdMutex } from "../../core/stores/etcd/locks/mutex.ts";
import type { EtcdSession } from "../../core/stores/etcd/locks/session.ts";
import { pause } from "../support/until.ts";
import type { Repeated, Reporter } from "./measure.ts";

/** Time for a waiter to enqueue, or for a watch to start, in milliseconds: a multiple of the time needed. */
const SETTLE = 10;

/** Returns a contender in which the mutexes of all sessions lock the same name repeatedly. */
export function handOvers(
  name: string,
  etcd: Etcd,
  sessions: readonly EtcdSession[],
  hold = 0,
): Repeated {
  const prefix = freshPrefix();
  const mutexes = sessions.map((session) => new EtcdMutex(etcd, session, prefix));
  return {
    name,
    clients: mutexes.length,
    async run(client) {
      const mutex = mutexes[client] as EtcdMutex;
      await mutex.lock();
      if (hold > 0) await pause(hold);
      await mutex.unlock();
    },
  };
}

/** Measures the time from the call of unlock until the lock call of a waiting session resolves. */
export function handOver(name: string, etcd: Etcd, one: EtcdSession, other: EtcdSession): Reporter {
  const prefix = freshPrefix();
  const mutexes = [one, other].map((session) => new EtcdMutex(etcd, session, prefix));
  const [holder, waiter] = mutexes as [EtcdMutex, EtcdMutex];
  return toReporter(name, async () => {
    await holder.lock();
    const locked = waiter.lock().then(() => performance.now());
    await pause(SETTLE);
    const sentAt = performance.now();
    await holder.unlock();
    const lockedAt = await locked;
    await waiter.unlock();
    return lockedAt - sentAt;
  });
}

/** Measures the time from a delete request to its event: the lower bound of a hand-over through etcd. */
export function deleteToEvent(name: string, etcd: Etcd): Reporter {
  const key = freshPrefix();
  return toReporter(name, async () => {
    await etcd.txn({ when: [], do: [put(key, "")] });
    const told = Promise.withResolvers<number>();
    const stop = etcd.watch(key, {
      ready: () => {},
      changed: () => told.resolve(performance.now()),
    });
    await pause(SETTLE);
    const sentAt = performance.now();
    await etcd.txn({ when: [], do: [remove(key)] });
    const toldAt = await told.promise;
    stop();
    return toldAt - sentAt;
  });
}

/** Returns a reporter that repeats `lap`, which resolves to the measured milliseconds. */
export function toReporter(name: string, lap: () => Promise<number>): Reporter {
  return {
    name,
    async report(blockMillis) {
      const startedAt = performance.now();
      const millis: number[] = [];
      while (performance.now() - startedAt < blockMillis) millis.push(await lap());
      const rate = (millis.length / (performance.now() - startedAt)) * 1_000;
      return { rate, millis, shares: [millis.length] };
    },
  };
}

function freshPrefix(): string {
  return `bench/${randomUUID()}`;
}
