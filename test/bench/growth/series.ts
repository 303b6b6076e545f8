import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { median, sum } from "simple-statistics";
import type { NewRun } from "../../../core/journal/runs.ts";
import type { LockStore } from "../../../core/lock/lock.ts";
import { pause } from "../../support/until.ts";
import type { GrowingStore } from "./stores.ts";

/** The cost of one operation at one size. */
export interface Point {
  readonly size: number;

  /** Milliseconds per operation. */
  readonly millis: number;

  /** The bytes that each of them takes in this process, where that is measured. */
  readonly bytes?: number;
}

/** Measures one size after the other, until the limit aborts. */
type Measure = (store: GrowingStore, limit: AbortSignal) => AsyncGenerator<Point>;

export interface Growth {
  /** What grows. */
  readonly name: string;

  /** The operation that is measured. */
  readonly operation: string;
  readonly measure: Measure;
}

/** How long one size is measured, once it is reached. */
const SPAN = 800;

/** The most operations of one size. */
const MOST = 400;

const WAITERS = [1, 3, 10, 30, 100, 300, 1_000];
const NAMES = [1, 10, 100, 1_000, 10_000, 100_000];
const CLIENTS = [1, 2, 4, 8, 16, 32, 64];
const RUNS = [1, 10, 100, 1_000, 10_000, 50_000, 200_000];

/** The most names of one `lockAll`, and how many of those requests are under way at once. */
const [AT_ONCE, REQUESTS] = [50, 4];

/** Locks whose memory is measured are acquired one by one. */
const SINGLE = 1_000;

/** The fewest waiters whose memory is measured: other objects come and go beside them. */
const MEASURABLE = 100;

/** The most runs of one `start`. */
const BATCH = 1_000;

const WAIT = 600_000;

/** Held names come last: a server that removes many of them answers nothing else in time. */
export const GROWTHS: readonly Growth[] = [
  { name: "waiters", operation: "hand-over to the next waiter", measure: handOvers },
  { name: "clients", operation: "acquire + release, each client its own name", measure: clients },
  { name: "runs", operation: "start and claim of one more", measure: runs },
  { name: "held names", operation: "acquire + release of one more", measure: heldNames },
];

/** A holder releases a lock with so many waiters; each of them releases it at once. */
async function* handOvers(store: GrowingStore, limit: AbortSignal): AsyncGenerator<Point> {
  const { ttl } = store;
  const holder = store.waiter();
  const waiters: LockStore[] = [];
  try {
    for (const size of WAITERS) {
      const added = Array.from({ length: size - waiters.length }, () => store.waiter());
      waiters.push(...added);
      // Sessions, and connections for wake-ups, are open before the line forms.
      await Promise.all(
        added.map((waiter, i) => pair(waiter, `first of ${size}, ${i}`, store, limit)),
      );
      const heapBefore = heap();
      const name = `line of ${size}`;
      const lock = await holder.lock(name, { ttl, wait: 0 });
      let grants = 0;
      const lines = waiters.map(async (waiter) => {
        const turn = await waiter.lock(name, { ttl, wait: WAIT, signal: limit });
        grants += 1;
        await turn.unlock();
      });
      const over = Promise.allSettled(lines);
      // Until all of them wait.
      await pause(100 + 2 * size);
      const bytes = (heap() - heapBefore) / size;
      const startedAt = performance.now();
      await lock.unlock();
      await over;
      if (grants === 0) return;
      const millis = (performance.now() - startedAt) / grants;
      yield { size, millis, ...(size >= MEASURABLE && { bytes }) };
      if (limit.aborted) return;
    }
  } finally {
    await Promise.all([holder, ...waiters].map((each) => each.close()));
  }
}

async function* heldNames(store: GrowingStore, limit: AbortSignal): AsyncGenerator<Point> {
  const options = { ttl: store.ttl, wait: WAIT, signal: limit };
  const [keeper, one] = [store.waiter(), store.waiter()];
  let held = 0;
  const holdMore = async (most: number) => {
    const names = Array.from({ length: most }, (_, i) => `held ${held + i}`);
    held += names.length;
    await keeper.lockAll(names, options);
  };
  // Connections are not counted as memory of the locks.
  await pair(keeper, "first", store, limit);
  try {
    for (const size of NAMES) {
      const heapBefore = heap();
      const before = held;
      while (held < size && !limit.aborted) {
        const most = size <= SINGLE ? 1 : AT_ONCE;
        const requests = Math.min(REQUESTS, Math.ceil((size - held) / most));
        await Promise.all(
          Array.from({ length: requests }, () => holdMore(Math.min(most, size - held))),
        );
      }
      if (limit.aborted) return;
      const bytes = (heap() - heapBefore) / (held - before);
      const millis = await typical(limit, () => pair(one, "one more", store, limit));
      yield { size: held, millis, ...(size === SINGLE && { bytes }) };
    }
  } finally {
    await one.close();
    await keeper.close();
  }
}

/** The cost is the elapsed time over the operations of all clients. */
async function* clients(store: GrowingStore, limit: AbortSignal): AsyncGenerator<Point> {
  const all: LockStore[] = [];
  for (const size of CLIENTS) {
    while (all.length < size && !limit.aborted) all.push(await store.connect());
    if (limit.aborted) return;
    const once = (client: LockStore, i: number) => pair(client, `client ${i}`, store, limit);
    await Promise.all(all.map(once));
    const startedAt = performance.now();
    const counts = all.map(async (client, i) => {
      let count = 0;
      for (; performance.now() - startedAt < SPAN; count += 1) await once(client, i);
      return count;
    });
    const total = sum(await Promise.all(counts));
    yield { size, millis: (performance.now() - startedAt) / total };
  }
}

async function* runs({ journal }: GrowingStore, limit: AbortSignal): AsyncGenerator<Point> {
  if (!journal) return;
  const query = {
    owner: "growth",
    ttl: WAIT,
    workflows: [{ workflow: "growth", version: 1 }],
    queues: ["default"],
    limit: 1,
  };
  let started = 0;
  for (const size of RUNS) {
    while (started < size && !limit.aborted) {
      const batch = Array.from({ length: Math.min(BATCH, size - started) }, newRun);
      await journal.start(batch);
      started += batch.length;
    }
    if (limit.aborted) return;
    const millis = await typical(limit, async () => {
      await journal.start([newRun()]);
      const [claimed] = await journal.claimDue(query);
      if (!claimed) throw new Error("no run is due");
    });
    yield { size, millis };
  }
}

function newRun(): NewRun {
  return {
    runId: crypto.randomUUID(),
    owner: "growth",
    workflow: "growth",
    version: 1,
    input: "{}",
    inputHash: "0".repeat(64),
  };
}

/** Acquires and releases. */
async function pair(
  client: LockStore,
  name: string,
  { ttl }: GrowingStore,
  signal: AbortSignal,
): Promise<void> {
  await (await client.lock(name, { ttl, wait: WAIT, signal })).unlock();
}

/** Resolves to the median of the milliseconds that the operation takes. */
async function typical(limit: AbortSignal, operation: () => Promise<unknown>): Promise<number> {
  const millis: number[] = [];
  const startedAt = performance.now();
  const isOver = () =>
    limit.aborted || millis.length >= MOST || performance.now() - startedAt >= SPAN;
  do {
    const sentAt = performance.now();
    await operation();
    millis.push(performance.now() - sentAt);
  } while (!isOver());
  return median(millis);
}

/** Returns the bytes in use, without garbage. */
function heap(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const collectGarbage = (() => {
  setFlagsFromString("--expose-gc");
  return runInNewContext("gc") as () => void;
})();
