import { expect, test, vi } from "vitest";
import { z } from "zod";
import type { Journal } from "../../core/journal/journal.ts";
import {
  SessionExpiredError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../core/lock/errors.ts";
import { nextTurn } from "../../core/lock/event-loop.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { entity } from "../../core/steps/entity/entity.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { type AnyWorkflow, workflow } from "../../core/steps/workflow.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import type { WorkerEvent, WorkerOptions } from "../../functions/worker/options.ts";
import { PollSchedule } from "../../functions/worker/poll-schedule.ts";
import { runWorker } from "../../functions/worker/worker.ts";
import { dueOf } from "../support/runs.ts";
import { pause, until, within } from "../support/until.ts";

const Item = z.object({ id: z.string() });
const itemId = ({ id }: { readonly id: string }) => id;

/** A worker in this process, on a journal of its own unless another one is given. */
function startWorker(
  workflows: readonly AnyWorkflow[],
  options: Partial<WorkerOptions> = {},
  journal = memoryJournal(),
) {
  const locks = memoryLocks();
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

/** Counts the callers of `pass`, and the most of them at a time. */
function occupancy() {
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

test("the worker executes runs that other processes started, at most `concurrency` at a time", async () => {
  const { inside, pass } = occupancy();
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, (ctx) =>
    ctx.step("work", () => pass(15)),
  );
  const worker = startWorker([item], { concurrency: 3 });
  for (let i = 0; i < 20; i += 1) await worker.runtime.start(item, { id: `run-${i}` });
  await until(() => inside.came === 20 && inside.now === 0);
  worker.end();
  expect(await worker.ended).toEqual({
    completed: 20,
    failed: 0,
    parked: 0,
    blocked: 0,
    isClean: true,
  });
  expect(inside.most).toBe(3);
});

test("the worker ignores errors of its listener", async () => {
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
  expect(await worker.ended).toEqual({
    completed: 3,
    failed: 0,
    parked: 0,
    blocked: 0,
    isClean: true,
  });
});

test("the worker reports once that operations of entities cannot be handled, and tries again", async () => {
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, async () => {});
  const runtime = createRuntime({ journal: memoryJournal(), workflows: [item] });
  const error = new TypeError("a fault");
  let deliveries = 0;
  runtime.deliver = async () => {
    deliveries += 1;
    throw error;
  };
  const worker = startWorker([item], { runtime });
  await until(() => deliveries > 2);
  worker.end();
  await worker.ended;
  expect(worker.events).toEqual([{ type: "failed", what: "entities", error }]);
});

test("the keys of due runs take turns, however many runs one key has", async () => {
  const order: string[] = [];
  const Order = z.object({ id: z.string(), tenant: z.string() });
  const item = workflow(
    { name: "item", version: 1, input: Order, id: itemId, key: ({ tenant }) => tenant },
    (ctx, { tenant }) => ctx.step("work", async () => order.push(tenant)),
  );
  const journal = memoryJournal();
  const early = createRuntime({ journal });
  for (let i = 0; i < 1_500; i += 1) {
    await early.start(item, { id: `run-${i}`, tenant: i < 1_497 ? "busy" : `quiet-${i}` });
  }
  const worker = startWorker([item], { concurrency: 8 }, journal);
  await until(() => order.length > 100);
  expect(order.slice(0, 8)).toEqual(
    expect.arrayContaining(["quiet-1497", "quiet-1498", "quiet-1499"]),
  );
  worker.end();
  await worker.ended;
});

test("a worker executes the runs of its queues alone, those of a higher priority first", async () => {
  const order: string[] = [];
  const item = workflow(
    { name: "item", version: 1, input: Item, id: itemId, queue: "mail" },
    (ctx, { id }) => ctx.step("work", async () => order.push(id)),
  );
  const journal = memoryJournal();
  const early = createRuntime({ journal });
  await early.start(item, { id: "other" }, { queue: "bulk" });
  for (const priority of [-5, 0, 1_000]) {
    await early.start(item, { id: `priority ${priority}` }, { priority });
  }
  const worker = startWorker([item], { concurrency: 1 }, journal);
  await until(() => order.length === 3);
  expect(order).toEqual(["priority 1000", "priority 0", "priority -5"]);
  const bulk = startWorker([item], { queues: ["bulk"] }, journal);
  await until(() => order.length === 4);
  expect(order[3]).toBe("other");
  for (const one of [worker, bulk]) {
    one.end();
    await one.ended;
  }
  await expect(runWorker({ runtime: worker.runtime, queues: [] })).rejects.toThrow(TypeError);
  await expect(runWorker(undefined as never)).rejects.toThrow("runWorker needs a runtime, such as");
});

test("an idle worker looks at once for a run that this process starts, signals or cancels", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
  try {
    const own = (name: string) =>
      workflow({ name, version: 1, input: Item, id: itemId }, async () => {});
    const journal = memoryJournal();
    let looks = 0;
    const claimDue: typeof journal.claimDue = (...args) => {
      looks += 1;
      return journal.claimDue(...args);
    };
    const worker = startWorker([own("served")], {}, { ...journal, claimDue });
    const other = createRuntime({ journal });
    // The worker pauses between two polls, and the clock does not move from now on.
    await vi.advanceTimersByTimeAsync(1_000);
    for (const call of [
      () => other.start(own("other"), { id: "a" }),
      () => other.signal("a", "go", "now", { dedupeId: "1" }),
      () => other.cancel("a"),
    ]) {
      const before = looks;
      await call();
      for (let i = 0; i < 1_000 && looks === before; i += 1) await nextTurn();
      expect(looks).toBeGreaterThan(before);
    }
    worker.end();
    await worker.ended;
  } finally {
    vi.useRealTimers();
  }
});

test("a worker handles what an entity is told at once, also while all its slots are full", async () => {
  const journal = memoryJournal();
  const counter = entity({ name: "counter", state: z.int(), initial: 0 }, (on) => ({
    add: on(z.int(), async ({ state }, n) => ({ state: state + n })),
  }));
  const gate = Promise.withResolvers<void>();
  let begun = 0;
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, (ctx) =>
    ctx.step("wait", async () => {
      begun += 1;
      await gate.promise;
    }),
  );
  const runtime = createRuntime({ journal, workflows: [item], entities: [counter] });
  const stop = new AbortController();
  const working = runWorker({ runtime, concurrency: 1, signal: stop.signal });
  await runtime.start(item, { id: "a" });
  await until(() => begun === 1);
  const one = runtime.entity(counter, "one");
  for (const n of [1, 2, 3]) await one.tell("add", n, { operationId: `${n}` });
  await until(async () => (await one.state()) === 6);
  gate.resolve();
  stop.abort();
  await working;
});

test("a worker waits for the rate of a queue without polling for it, and then claims at once", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
  try {
    const journal = memoryJournal();
    await journal.setLimits("default", { rate: { runs: 1, per: "10s" } });
    const begun: number[] = [];
    const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, async () => {
      begun.push(Math.round(performance.now() - from));
    });
    const early = createRuntime({ journal });
    for (const id of ["a", "b", "c"]) await early.start(item, { id });
    let claims = 0;
    const claimDue: typeof journal.claimDue = (...args) => {
      claims += 1;
      return journal.claimDue(...args);
    };
    const from = performance.now();
    const worker = startWorker([item], {}, { ...journal, claimDue });
    // The clock waits for what the runs do between two timers: that takes turns of the event loop.
    for (let at = 0; at < 20_020; at += 5) {
      await vi.advanceTimersByTimeAsync(5);
      for (let turn = 0; turn < 5; turn += 1) await nextTurn();
    }
    expect(begun).toHaveLength(3);
    for (const [i, at] of begun.entries()) expect(at - 10_000 * i).toBeLessThanOrEqual(10);
    // As often as an idle worker.
    expect(claims).toBeLessThan(20 * 11);
    worker.end();
    await vi.advanceTimersByTimeAsync(1_000);
    await worker.ended;
  } finally {
    vi.useRealTimers();
  }
});

test("runs that wait for a hot lock hold no slot, and get the lock one after another", async () => {
  const done: string[] = [];
  const Task = z.object({ id: z.string(), lock: z.string() });
  const item = workflow(
    { name: "item", version: 1, input: Task, id: itemId },
    (ctx, { id, lock }) =>
      ctx.step("work", { lock }, async () => {
        await pause(20);
        done.push(id);
      }),
  );
  const journal = memoryJournal();
  const early = createRuntime({ journal });
  for (let i = 0; i < 60; i += 1) await early.start(item, { id: `hot ${i}`, lock: "hot" });
  for (let i = 0; i < 20; i += 1) await early.start(item, { id: `own ${i}`, lock: `own ${i}` });
  const worker = startWorker([item], { concurrency: 8 }, journal);
  await until(() => done.length === 80, 60_000);
  const hotBefore = done.findLastIndex((id) => id.startsWith("own")) - 19;
  expect(hotBefore).toBeLessThan(40);
  worker.end();
  expect(await worker.ended).toMatchObject({ completed: 80, failed: 0 });
});

test("the worker deletes expired runs, now and then", async () => {
  const definition = { name: "brief", version: 1, input: Item, id: itemId, keep: 1 } as const;
  const brief = workflow(definition, async () => {});
  const journal = memoryJournal();
  const purged: number[] = [];
  const purge: typeof journal.purge = async (limit) => {
    const count = await journal.purge(limit);
    purged.push(count);
    return count;
  };
  const early = createRuntime({ journal });
  for (let i = 0; i < 150; i += 1) await early.execute(brief, { id: `run-${i}` });
  await pause(5);
  const worker = startWorker([brief], {}, { ...journal, purge });
  await until(() => purged.length === 2);
  expect(purged).toEqual([100, 50]);
  worker.end();
  await worker.ended;
});

test("a sleeping run occupies neither a slot nor a lock, and wakes up in time", async () => {
  const woken: number[] = [];
  const sleeper = workflow(
    { name: "sleeper", version: 1, input: Item, id: itemId },
    async (ctx, { id }) => {
      await ctx.step("lock", { lock: "bed" }, async () => {});
      await ctx.sleep("night", id === "nap" ? 400 : 3_600_000);
      woken.push(performance.now());
    },
  );
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, (ctx) =>
    ctx.step("work", { lock: "bed" }, async () => {}),
  );
  const worker = startWorker([sleeper, item], { concurrency: 1 });
  await worker.runtime.start(sleeper, { id: "sleeper" });
  await until(() => worker.events.some((event) => event.type === "executed"));
  await worker.runtime.start(item, { id: "awake" });
  const info = await until(async () => {
    const runs = await worker.journal.list({ status: "completed" });
    return runs.find(({ runId }) => runId === "awake");
  });
  expect(info).toBeDefined();
  expect(woken).toEqual([]);
  const begunAt = performance.now();
  await worker.runtime.start(sleeper, { id: "nap" });
  await until(() => woken.length === 1);
  expect(Number(woken[0]) - begunAt).toBeGreaterThanOrEqual(400);
  worker.end();
  await worker.ended;
});

test("the worker does not execute runs of an unknown version", async () => {
  const version = (number: number) =>
    workflow({ name: "item", version: number, input: Item, id: itemId }, async () => number);
  const journal = memoryJournal();
  const newer = createRuntime({ journal });
  await newer.start(version(2), { id: "new" });
  await newer.start(version(1), { id: "old" });
  const started = await journal.show("new");
  const worker = startWorker([version(1)], {}, journal);
  await until(async () => (await journal.show("old"))?.status === "completed");
  await pause(150);
  expect(await journal.show("new")).toMatchObject({ ...started, now: expect.any(Date) });
  const other = startWorker([version(2)], {}, journal);
  await until(async () => (await journal.show("new"))?.status === "completed");
  for (const one of [worker, other]) {
    one.end();
    await one.ended;
  }
});

test("several workers execute every run, and no run twice at a time", async () => {
  const perRun = new Map<string, ReturnType<typeof occupancy>>();
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, async (ctx) => {
    const own = perRun.get(ctx.runId) ?? occupancy();
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

test("a stopping worker finishes the running step, and parks the run before the next step", async () => {
  const done: string[] = [];
  const { promise: atWork, resolve: begun } = Promise.withResolvers<void>();
  const { promise: going, resolve: go } = Promise.withResolvers<void>();
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, async (ctx) => {
    await ctx.step("first", { lock: "a" }, async () => {
      begun();
      await going;
      done.push("first");
    });
    await ctx.step("second", async () => done.push("second"));
  });
  const worker = startWorker([item], { concurrency: 1 });
  await worker.runtime.start(item, { id: "one" });
  await atWork;
  await worker.runtime.start(item, { id: "waiting" });
  worker.end();
  go();
  expect(await worker.ended).toEqual({
    completed: 0,
    failed: 0,
    parked: 1,
    blocked: 0,
    isClean: true,
  });
  expect(done).toEqual(["first"]);
  expect(await worker.journal.show("one")).toMatchObject({ status: "parked" });
  expect(await worker.locks.list()).toEqual([]);
  expect((await dueOf(worker.journal, item.name)).toSorted()).toEqual(["one", "waiting"]);
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
    expect(await within(60_000, worker.ended)).toMatchObject({ parked: 1, isClean: false });
    expect(reason).toBeDefined();
    expect(await worker.locks.list()).toEqual([]);
    expect(await worker.journal.show("one")).toMatchObject({ status: "parked" });
    expect(worker.events.map(({ type }) => type)).toEqual(["draining", "aborting", "executed"]);
  },
);

test("the pauses between polls grow while no run is due, and polls never overlap", async () => {
  const journal = memoryJournal();
  let looks = 0;
  const counting = {
    ...journal,
    claimDue: (...args: Parameters<typeof journal.claimDue>) => {
      looks += 1;
      return journal.claimDue(...args);
    },
  };
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, async () => {});
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
  try {
    const worker = startWorker([item], {}, counting);
    await vi.advanceTimersByTimeAsync(1_500);
    expect(looks).toBeGreaterThan(2);
    // Pauses of 25 to 50 ms at first, and of 100 to 200 ms later.
    expect(looks).toBeLessThan(20);
    worker.end();
    await worker.ended;
  } finally {
    vi.useRealTimers();
  }
});

test("the worker polls when a run that it has parked wakes up, but not during the pause after an outage", () => {
  const pace = new PollSchedule();
  for (let i = 0; i < 6; i += 1) pace.polled(0);
  expect(pace.wait).toBeGreaterThan(90);
  expect(pace.wait).toBeLessThanOrEqual(200);
  pace.parked(Number.POSITIVE_INFINITY);
  pace.parked(50);
  pace.polled(0);
  expect(pace.wait).toBeLessThanOrEqual(50);
  pace.polled(1);
  expect(pace.wait).toBe(0);
  for (let i = 0; i < 8; i += 1) pace.failed();
  expect(pace.wait).toBeGreaterThan(2_000);
  expect(pace.wait).toBeLessThanOrEqual(5_000);
});

test("a lost queue entry of a lock is no failed attempt, and the run waits for its lock again", async () => {
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, (ctx) =>
    ctx.step("work", { lock: "a", retry: false }, async ({ attempt }) => attempt),
  );
  const store = memoryLocks();
  const losses = [new SessionExpiredError("7"), new UnknownOutcomeError("etcd", "it was locked")];
  const lockAll: typeof store.lockAll = async (...args) => {
    const loss = losses.pop();
    if (loss) throw loss;
    return store.lockAll(...args);
  };
  const journal = memoryJournal();
  const locks = { traits: store.traits, lockAll } satisfies Partial<LockStore> as LockStore;
  const runtime = createRuntime({ journal, locks, inlineWait: 10 });
  const first = await runtime.execute(item, { id: "one" });
  expect(first).toMatchObject({ status: "suspended", reason: "lock-busy" });
  expect(await runtime.run(item, { id: "one" })).toMatchObject({ status: "completed", output: 1 });
  expect(losses).toEqual([]);
});

test("a call that was sent in an outage and fails after it does not start a second outage", async () => {
  const memory = memoryJournal();
  const away = new StoreUnavailableError("the journal", "it does not answer");
  const sent = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<never>();
  let isAway = false;
  const journal: Journal = {
    ...memory,
    claimDue: async (query) => (isAway ? Promise.reject(away) : memory.claimDue(query)),
    append: async (run, record) => {
      if (record.key !== "late") return memory.append(run, record);
      sent.resolve();
      return answer.promise;
    },
  };
  const item = workflow({ name: "item", version: 1, input: Item, id: itemId }, (ctx, { id }) =>
    ctx.step(id, async () => {}),
  );
  const worker = startWorker([item], {}, journal);
  const said = () => worker.events.map(({ type }) => type).filter((type) => type !== "executed");
  const hasExecuted = () => worker.events.some(({ type }) => type === "executed");
  await worker.runtime.start(item, { id: "late" });
  await sent.promise;
  isAway = true;
  await until(() => said().includes("outage"));
  isAway = false;
  await until(() => said().includes("recovered"));
  answer.reject(away);
  await worker.runtime.start(item, { id: "next" });
  await until(hasExecuted);
  expect(said()).toEqual(["outage", "recovered"]);
  worker.end();
  await worker.ended;
});
