import { randomUUID } from "node:crypto";
import { type Etcd, put, remove } from "../../core/etcd/etcd.ts";
import { Mutex, type Session } from "../../core/stores/etcd/index.ts";
import { pause } from "../support/until.ts";
import type { Repeated, Reporter } from "./measure.ts";

/** Time for the next in line, or for a watch, to stand: far more than it takes. */
const SETTLE = 10;

/** One mutex under the same prefix for each of `sessions`; every one of them locks again and again. */
export function handOvers(
  name: string,
  etcd: Etcd,
  sessions: readonly Session[],
  hold = 0,
): Repeated {
  const prefix = freshPrefix();
  const mutexes = sessions.map((session) => new Mutex(etcd, session, prefix));
  return {
    name,
    clients: mutexes.length,
    async run(client) {
      const mutex = mutexes[client] as Mutex;
      await mutex.lock();
      if (hold > 0) await pause(hold);
      await mutex.unlock();
    },
  };
}

/** From the call of unlock until the other session's lock, which waits already, resolves. */
export function handOver(name: string, etcd: Etcd, one: Session, other: Session): Reporter {
  const prefix = freshPrefix();
  const mutexes = [one, other].map((session) => new Mutex(etcd, session, prefix));
  const [holder, waiter] = mutexes as [Mutex, Mutex];
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

/** From the call of a delete until its event: no hand-over through etcd is faster. */
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

/** `lap` resolves to the milliseconds that count. */
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
