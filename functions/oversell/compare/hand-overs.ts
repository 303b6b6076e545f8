import { quantile } from "simple-statistics";
import { sleep } from "../../../core/lock/abort.ts";
import type { LockStore } from "../../../core/lock/lock.ts";
import type { Millis } from "../../../core/lock/time.ts";

export interface HandOvers {
  /** The time from a release until the next client has the lock. */
  readonly median: Millis;
  readonly slowest: Millis;

  /** The number of waiters that got the lock in the order of their arrival, of all. */
  readonly inOrder: number;
  readonly waiters: number;
}

const LAPS = 40;

/** Clients that wait at the same time. */
const IN_LINE = 8;
const LINES = 5;

/** The time for a waiter to enter the queue: a multiple of the time that it needs on an idle machine. */
const SETTLE: Millis = 60;

/** The longest time for a waiter to enter the queue. */
const LONGEST_SETTLE: Millis = 10_000;

const OPTIONS = { ttl: 30_000, wait: 60_000 };

/** Measures hand-overs between clients, each of which `openClient` opens. */
export async function measureHandOvers(openClient: () => Promise<LockStore>): Promise<HandOvers> {
  const clients: LockStore[] = [];
  for (let i = 0; i <= IN_LINE; i += 1) clients.push(await openClient());
  const [first, second, ...others] = clients as [LockStore, LockStore, ...LockStore[]];
  const times: Millis[] = [];
  for (let lap = 0; lap < LAPS; lap += 1) times.push(await handOver(first, second, `lap-${lap}`));
  let inOrder = 0;
  for (let line = 0; line < LINES; line += 1) {
    inOrder += await countInOrder(first, [second, ...others], `line-${line}`);
  }
  const [median = 0, slowest = 0] = quantile(times, [0.5, 1]);
  return { median, slowest, inOrder, waiters: LINES * IN_LINE };
}

async function handOver(from: LockStore, to: LockStore, name: string): Promise<Millis> {
  const held = await from.lock(name, OPTIONS);
  const waiting = to.lock(name, OPTIONS).then((lock) => ({ lock, at: performance.now() }));
  // Pollers look at random times.
  await sleep(SETTLE * (1 + Math.random()));
  const releasedAt = performance.now();
  await held.unlock();
  const { lock, at } = await waiting;
  await lock.unlock();
  return at - releasedAt;
}

/** Lets clients enter the queue one after another, and counts those that get the lock in this order. */
async function countInOrder(
  holder: LockStore,
  waiters: readonly LockStore[],
  name: string,
): Promise<number> {
  const held = await holder.lock(name, OPTIONS);
  const served: number[] = [];
  const waiting: Promise<void>[] = [];
  for (const [place, client] of waiters.entries()) {
    const wait = async () => {
      const lock = await client.lock(name, OPTIONS);
      served.push(place);
      await lock.unlock();
    };
    waiting.push(wait());
    await untilInLine(holder, name, place + 1);
  }
  await held.unlock();
  await Promise.all(waiting);
  return served.filter((place, i) => place === i).length;
}

/** Resolves when the waiters are in the queue, if the store counts them, and after a pause if not. */
async function untilInLine(store: LockStore, name: string, count: number): Promise<void> {
  const giveUpAt = performance.now() + LONGEST_SETTLE;
  do {
    await sleep(SETTLE);
    const info = await store.inspect(name);
    if (!info?.queue || info.queue.length >= count) return;
  } while (performance.now() < giveUpAt);
}
