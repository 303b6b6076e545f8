import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { sqlInventory } from "../../core/inventory/sql.ts";
import { memoryJournal } from "../../core/journal/memory.ts";
import { SessionExpiredError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { type AnyWorkflow, workflow } from "../../core/steps/workflow.ts";
import { memoryStore } from "../../core/stores/memory/index.ts";
import type { WorkerEvent, WorkerOptions } from "../../functions/worker/options.ts";
import { Pace } from "../../functions/worker/pace.ts";
import { runWorker } from "../../functions/worker/worker.ts";
import { open } from "../../infra/open.ts";
import patient from "../programs/patient.ts";
import { startCli } from "../support/cli.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause, until, within } from "../support/until.ts";

const Item = z.object({ id: z.string() });
const itemId = ({ id }: { readonly id: string }) => id;

/** A worker in this process, on a journal of its own unless another one is given. */
function startWorker(
  workflows: readonly AnyWorkflow[],
  options: Partial<WorkerOptions> = {},
  journal = memoryJournal(),
) {
  const locks = memoryStore();
  const runtime = createRuntime({ journal, locks, workflows, inlineWait: 10 });
  const end = new AbortController();
  const abort = new AbortController();
  const events: WorkerEvent[] = [];
  const ended = runWorker({
    runtime,
    signal: end.signal,
    abort: abort.signal,
    onEvent: (event) => events.push(event),
    ...options,
  });
  return {
    journal,
    locks,
    runtime,
    end: () => end.abort(),
    abort: () => abort.abort(),
    events,
    ended,
  };
}

/** Counts how many are in at a time. */
function turnstile() {
  const inside = { now: 0, most: 0, came: 0 };
  return {
    ...inside,
    inside,
    async pass(millis: number) {
      inside.came += 1;
      inside.now += 1;
      inside.most = Math.max(inside.most, inside.now);
      await pause(millis);
      inside.now -= 1;
    },
  };
}

test("carries what others have begun, no more runs at a time than allowed", async () => {
  const { inside, pass } = turnstile();
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, (ctx) =>
    ctx.step("work", () => pass(15)),
  );
  const worker = startWorker([item], { concurrency: 3 });
  for (let i = 0; i < 20; i += 1) await worker.runtime.start(item, { id: `run-${i}` });
  await until(() => inside.came === 20 && inside.now === 0);
  worker.end();
  expect(await worker.ended).toEqual({ completed: 20, failed: 0, parked: 0, isClean: true });
  expect(inside.most).toBe(3);
});

test("is not troubled by a listener that throws", async () => {
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, (ctx) =>
    ctx.step("work", async () => {}),
  );
  const onEvent = () => {
    throw new Error("a fault of the listener's own");
  };
  const worker = startWorker([item], { concurrency: 1, onEvent });
  const runIds = ["run-1", "run-2", "run-3"];
  for (const id of runIds) await worker.runtime.start(item, { id });
  await until(async () => (await worker.journal.list({ status: "completed" })).length === 3);
  worker.end();
  expect(await worker.ended).toEqual({ completed: 3, failed: 0, parked: 0, isClean: true });
});

test("carries no more runs of one key at a time than allowed, and others meanwhile", async () => {
  const perCustomer = new Map<string, ReturnType<typeof turnstile>>();
  const all = turnstile();
  const Order = z.object({ id: z.string(), customer: z.string() });
  const order = workflow({ name: "order", version: 1, input: Order, id: itemId }, (ctx, input) =>
    ctx.step("work", async () => {
      const own = perCustomer.get(input.customer) ?? turnstile();
      perCustomer.set(input.customer, own);
      await Promise.all([own.pass(15), all.pass(15)]);
    }),
  );
  const journal = memoryJournal();
  const early = createRuntime({ journal });
  for (let i = 0; i < 40; i += 1) {
    await early.start(order, { id: `run-${i}`, customer: i < 30 ? "busy" : `quiet-${i % 3}` });
  }
  const keyOf: WorkerOptions["keyOf"] = ({ input }) => (input as { customer: string }).customer;
  const worker = startWorker([order], { concurrency: 8, keyOf, perKey: 2 }, journal);
  await until(() => all.inside.came === 40 && all.inside.now === 0);
  worker.end();
  expect(await worker.ended).toMatchObject({ completed: 40 });
  const most = [...perCustomer.values()].map(({ inside }) => inside.most);
  expect(Math.max(...most)).toBe(2);
  expect(all.inside.most).toBeGreaterThan(4);
});

test("a sleeping run takes up neither a place nor a lock, and wakes up in time", async () => {
  const woken: number[] = [];
  const sleeper = workflow(
    { name: "sleeper", version: 1, input: Item, id: itemId },
    async (ctx) => {
      await ctx.step("lock", { lock: "bed" }, async () => {});
      await ctx.sleep("night", 400);
      woken.push(performance.now());
    },
  );
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, (ctx) =>
    ctx.step("work", { lock: "bed" }, async () => {}),
  );
  const worker = startWorker([sleeper, item], { concurrency: 1 });
  const begunAt = performance.now();
  await worker.runtime.start(sleeper, { id: "sleeper" });
  await until(() => worker.events.some((event) => event.type === "carried"));
  await worker.runtime.start(item, { id: "awake" });
  const info = await until(async () => {
    const runs = await worker.journal.list({ status: "completed" });
    return runs.find(({ runId }) => runId === "awake");
  });
  expect(info).toBeDefined();
  expect(woken).toEqual([]);
  await until(() => woken.length === 1);
  expect(Number(woken[0]) - begunAt).toBeGreaterThanOrEqual(400);
  worker.end();
  await worker.ended;
});

test("leaves alone runs of a version that it does not know", async () => {
  const version = (number: number) =>
    workflow({ name: "item", version: number, input: Item, id: itemId }, async () => number);
  const journal = memoryJournal();
  const newer = createRuntime({ journal });
  await newer.start(version(2), { id: "new" });
  await newer.start(version(1), { id: "old" });
  const worker = startWorker([version(1)], {}, journal);
  await until(async () => (await journal.show("old"))?.status === "completed");
  await pause(150);
  expect(await journal.show("new")).toMatchObject({ status: "parked", epoch: 1n });
  const other = startWorker([version(2)], {}, journal);
  await until(async () => (await journal.show("new"))?.status === "completed");
  for (const one of [worker, other]) {
    one.end();
    await one.ended;
  }
});

test("several workers carry every run, none of them twice at a time", async () => {
  const perRun = new Map<string, ReturnType<typeof turnstile>>();
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, async (ctx) => {
    const own = perRun.get(ctx.runId) ?? turnstile();
    perRun.set(ctx.runId, own);
    await ctx.step("one", () => own.pass(3));
    await ctx.sleep("nap", 20);
    await ctx.step("two", () => own.pass(3));
  });
  const journal = memoryJournal();
  const workers = [1, 2, 3, 4].map(() => startWorker([item], { concurrency: 4 }, journal));
  for (let i = 0; i < 60; i += 1) await workers[0]?.runtime.start(item, { id: `run-${i}` });
  await until(async () => (await journal.list({ status: "completed" })).length === 60);
  for (const worker of workers) worker.end();
  const reports = await Promise.all(workers.map(({ ended }) => ended));
  expect(reports.reduce((sum, { completed }) => sum + completed, 0)).toBe(60);
  expect([...perRun.values()].map(({ inside }) => [inside.came, inside.most])).toEqual(
    Array(60).fill([2, 1]),
  );
});

test("told to end, it lets the step under way finish, and parks the run before its next one", async () => {
  const done: string[] = [];
  const { promise: atWork, resolve: begun } = Promise.withResolvers<void>();
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, async (ctx) => {
    await ctx.step("first", { lock: "a" }, async () => {
      begun();
      await pause(200);
      done.push("first");
    });
    await ctx.step("second", async () => done.push("second"));
  });
  const worker = startWorker([item], { concurrency: 1 });
  await worker.runtime.start(item, { id: "one" });
  await atWork;
  await worker.runtime.start(item, { id: "waiting" });
  worker.end();
  expect(await worker.ended).toEqual({ completed: 0, failed: 0, parked: 1, isClean: true });
  expect(done).toEqual(["first"]);
  expect(await worker.journal.show("one")).toMatchObject({ status: "parked" });
  expect(await worker.locks.list()).toEqual([]);
  const due = await worker.journal.due({ workflows: worker.runtime.workflows, limit: 9 });
  expect(due.toSorted()).toEqual(["one", "waiting"]);
});

test.each(["the time to drain is over", "it is told once more"] as const)(
  "aborts the steps under way when %s, and holds nothing afterwards",
  async (how) => {
    const { promise: atWork, resolve: begun } = Promise.withResolvers<void>();
    let reason: unknown;
    const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, (ctx) =>
      ctx.step("endless", { lock: "a" }, ({ signal }) => {
        begun();
        signal.addEventListener("abort", () => {
          reason = signal.reason;
        });
        return pause(60_000);
      }),
    );
    const isLong = how === "it is told once more";
    const worker = startWorker([item], { drain: isLong ? "1h" : "100ms" });
    await worker.runtime.start(item, { id: "one" });
    await atWork;
    expect(await worker.locks.list()).toHaveLength(1);
    worker.end();
    if (isLong) {
      await pause(100);
      expect(reason).toBeUndefined();
      worker.abort();
    }
    expect(await within(5_000, worker.ended)).toMatchObject({ parked: 1, isClean: false });
    expect(reason).toBeDefined();
    expect(await worker.locks.list()).toEqual([]);
    expect(await worker.journal.show("one")).toMatchObject({ status: "parked" });
    expect(worker.events.map(({ type }) => type)).toEqual(["draining", "aborting", "carried"]);
  },
);

test("asks ever more rarely while nothing is due, and never more often than the journal answers", async () => {
  const journal = memoryJournal();
  let looks = 0;
  const counting = {
    ...journal,
    due: (...args: Parameters<typeof journal.due>) => {
      looks += 1;
      return journal.due(...args);
    },
  };
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, async () => {});
  const worker = startWorker([item], {}, counting);
  await pause(1_500);
  expect(looks).toBeGreaterThan(2);
  expect(looks).toBeLessThan(15);
  worker.end();
  await worker.ended;
});

test("looks when a run wakes up that it has parked, and not before the journal has had a rest", () => {
  const pace = new Pace();
  for (let i = 0; i < 6; i += 1) pace.looked();
  expect(pace.wait).toBeGreaterThan(400);
  pace.parked(Number.POSITIVE_INFINITY);
  pace.parked(150);
  pace.looked();
  expect(pace.wait).toBeLessThanOrEqual(150);
  pace.found();
  expect(pace.wait).toBe(0);
  for (let i = 0; i < 8; i += 1) pace.failed();
  expect(pace.wait).toBeGreaterThan(2_000);
  expect(pace.wait).toBeLessThanOrEqual(5_000);
  // A run that is carried all the while is no sign of the journal's.
  pace.found();
  expect(pace.wait).toBeGreaterThan(2_000);
});

test("a place in line that was lost is no failed attempt: the run comes back for its lock", async () => {
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, (ctx) =>
    ctx.step("work", { lock: "a", retry: false }, async ({ attempt }) => attempt),
  );
  const store = memoryStore();
  const losses = [new SessionExpiredError("7"), new UnknownOutcomeError("etcd", "it was locked")];
  const lockAll: typeof store.lockAll = async (...args) => {
    const loss = losses.pop();
    if (loss) throw loss;
    return store.lockAll(...args);
  };
  const journal = memoryJournal();
  const locks = { traits: store.traits, lockAll } satisfies Partial<LockStore> as LockStore;
  const runtime = createRuntime({ journal, locks, inlineWait: 10 });
  const first = await runtime.drive(item, { id: "one" });
  expect(first).toMatchObject({ status: "suspended", reason: "lock-busy" });
  expect(await runtime.run(item, { id: "one" })).toMatchObject({ status: "completed", output: 1 });
  expect(losses).toEqual([]);
});

/** The command line on a store of its own, and what the module test/programs/patient.ts says. */
async function place() {
  const { file, remove } = await temporaryFile();
  const log = join(dirname(file), "log");
  await writeFile(log, "");
  const opened = await open(`sqlite:${file}`);
  const { journal, locks, database } = opened;
  if (!journal || !database) throw new Error("there is no journal");
  const runtime = createRuntime({ journal });
  const workflows = patient({ locks, database, inventory: sqlInventory(database) });
  const args = [PATIENT, "--store", `sqlite:${file}`];
  const env = { PATIENT_LOG: log };
  return {
    ...{ journal, locks },
    worker: (...more: readonly string[]) => startCli(["worker", ...args, ...more], { env }),
    begin: (name: string, id: string, millis: number) => {
      const found = workflows.find((one) => one.name === name);
      if (!found) throw new Error(`there is no workflow ${name}`);
      return runtime.start(found, { id, millis });
    },
    said: async () => (await readFile(log, "utf8")).split("\n").filter(Boolean),
    async close() {
      await opened.close();
      await remove();
    },
  };
}

const PATIENT = fileURLToPath(new URL("../programs/patient.ts", import.meta.url));
const LONG = 60_000;

describe.concurrent("lockstep worker", () => {
  test("lets its step finish on TERM, parks the run, exits with 0, and leaves no lock", async () => {
    const { worker, begin, said, journal, locks, close } = await place();
    await begin("patient", "a", 2_000);
    const { child, finished } = worker();
    await until(async () => (await said()).includes("a begins, 1 held"), LONG);
    child.kill("SIGTERM");
    expect(await finished).toMatchObject({
      status: 0,
      stdout: '{"completed":0,"failed":0,"parked":1}\n',
      stderr: "",
    });
    expect(await said()).toEqual(["a begins, 1 held", "a first"]);
    expect(await locks.list()).toEqual([]);
    expect(await journal.show("a")).toMatchObject({ status: "parked", reason: "deadline" });
    const other = worker();
    await until(async () => (await said()).includes("a second"), LONG);
    await until(async () => (await journal.show("a"))?.status === "completed", LONG);
    other.child.kill("SIGINT");
    expect((await other.finished).status).toBe(0);
    await close();
  }, 180_000);

  test("aborts its step on a second signal, or when the time to drain is over; the lock is free at once", async () => {
    const { worker, begin, said, journal, locks, close } = await place();
    await begin("patient", "a", 600_000);
    for (const [drain, signals] of [
      ["1h", 2],
      ["300ms", 1],
    ] as const) {
      const { child, finished } = worker("--drain", drain);
      const count = (line: string) => async () =>
        (await said()).filter((one) => one === line).length === (drain === "1h" ? 1 : 2);
      await until(count("a begins, 1 held"), LONG);
      child.kill("SIGTERM");
      if (signals === 2) {
        // Two at once would count as one.
        await pause(400);
        expect(await count("a aborted")()).toBe(false);
        child.kill("SIGTERM");
      }
      const { status, stderr } = await finished;
      expect({ drain, status }).toEqual({ drain, status: 128 + 15 });
      expect(stderr).toContain("still under way, and aborted: 1");
      expect(await count("a aborted")()).toBe(true);
      expect(await locks.list()).toEqual([]);
      expect(await journal.show("a")).toMatchObject({ status: "parked", crashes: 0 });
    }
    await close();
  }, 180_000);

  test("carries no two runs of a key that the module exports", async () => {
    const { worker, begin, said, close } = await place();
    for (const id of ["a", "b", "c"]) await begin("alone", id, 150);
    const { child, finished } = worker();
    await until(async () => (await said()).length === 6, LONG);
    child.kill("SIGHUP");
    expect((await finished).status).toBe(0);
    const order = (await said()).map((line) => line.split(" ")[1]);
    expect(order).toEqual(["in", "out", "in", "out", "in", "out"]);
    await close();
  }, 180_000);

  test("a killed one's run is gone on with by another one, once its lease is over", async () => {
    const { worker, begin, said, journal, close } = await place();
    await begin("patient", "a", 400);
    const first = worker("--lease", "1s");
    await until(async () => (await said()).includes("a begins, 1 held"), LONG);
    first.child.kill("SIGKILL");
    const second = worker("--lease", "1s");
    await until(async () => (await journal.show("a"))?.status === "completed", LONG);
    second.child.kill("SIGTERM");
    expect(await second.finished).toMatchObject({ status: 0 });
    expect((await said()).filter((line) => line === "a second")).toHaveLength(1);
    await close();
  }, 180_000);
});
