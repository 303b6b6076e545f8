import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { hasCode } from "../../core/lock/errors.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { openReady } from "../../infra/open-ready.ts";

/** long-lived URL SECONDS SAMPLES: takes locks, waits, aborts and runs workflows, and prints its memory and handles as lines of JSON. */
const [url = "", seconds = "", samples = ""] = process.argv.slice(2);

/** The names of locks come again: names that were never used before leave their fence in a store. */
const NAMES = 100;

/** Turns between two purges of ended runs. */
const PURGE_EVERY = 50;

/** Between two turns, in milliseconds: the machine has other work. */
const PAUSE = 250;

const opened = await openReady(url);
const { locks } = opened;
const runtime = opened.has("journal")
  ? createRuntime({ journal: opened.journal, locks })
  : undefined;
const greet = workflow(
  { name: "greet", version: 1, input: z.number(), id: (n) => `greet-${n}`, keep: 1_000 },
  async (ctx, n) => {
    await ctx.step("greet", async () => `hello ${n}`);
    return await ctx.step("again", async () => `hello again ${n}`);
  },
);

/** Lives as long as the process, like that of a service: each call must let go of it. */
const { signal } = new AbortController();

/** What each turn leaves in the process would add up. */
async function turn(number: number): Promise<void> {
  const name = `soak/${number % NAMES}`;
  const options = { ttl: 5_000, wait: 5_000, signal };
  const waiter = new AbortController();
  const lock = await locks.lock(name, options);
  const waiting = locks.lock(name, { ...options, signal: waiter.signal }).catch(() => undefined);
  try {
    const busy = await locks.tryLock(name, { ttl: 5_000 });
    if (busy) {
      const lost = lock.signal.reason;
      await busy.unlock();
      throw lost ?? new Error(`${name} has two holders`);
    }
    await lock.ensure(4_000);
  } finally {
    waiter.abort();
    const late = await waiting;
    await late?.unlock();
    await lock.unlock();
  }
  await runtime?.run(greet, number, { signal });
  if (number % PURGE_EVERY === 0) await purge();
}

/** On a busy machine, a lock may be lost, and a store silent: the turn ends, and the next one has another name. */
async function tryTurn(number: number): Promise<void> {
  await turn(number).catch((error) => {
    if (!hasCode(error, "LOCK_LOST", "LOCK_TIMEOUT", "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) {
      throw error;
    }
    process.stderr.write(`turn ${number} on ${locks.traits.name}: ${error.message}\n`);
  });
}

async function purge(): Promise<void> {
  if (opened.has("journal")) await opened.journal.purge(1_000);
}

const startedAt = performance.now();
const every = (Number(seconds) * 1_000) / Number(samples);
let turns = 0;
for (let sample = 1; sample <= Number(samples); sample += 1) {
  while (performance.now() - startedAt < sample * every) {
    turns += 1;
    await tryTurn(turns);
    await sleep(PAUSE);
  }
  // Without the records of ended runs, the store's size does not depend on the time of the last purge.
  await purge();
  // Twice: the first collection may leave what finalizers hold.
  globalThis.gc?.();
  await sleep(50);
  globalThis.gc?.();
  const { heapUsed: heap, external } = process.memoryUsage();
  const handles = process.getActiveResourcesInfo().filter((kind) => kind !== "Timeout").length;
  process.stdout.write(`${JSON.stringify({ turns, heap: heap + external, handles })}\n`);
}
await opened.close();
