import { describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import { createRuntime, type RunEvent, TerminalError, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { scheduleHandler, sweepHandler } from "../../functions/lambda/index.ts";
import { account } from "../support/account.ts";
import { pause } from "../support/until.ts";

function within(millis = 20_000) {
  const endsAt = Date.now() + millis;
  return { getRemainingTimeInMillis: () => Math.max(0, endsAt - Date.now()) };
}

const Report = z.object({ hour: z.string() });

describe.concurrent("a schedule", () => {
  const hourly = () => {
    const slots: string[] = [];
    const journal = memoryJournal();
    const runtime = createRuntime({ journal, inlineWait: 10 });
    const report = workflow(
      { name: "report", version: 1, input: Report },
      async (ctx, { hour }) => {
        await ctx.step("write", async () => void slots.push(hour));
        await ctx.waitFor("approved", z.object({}));
        return hour;
      },
    );
    const handler = scheduleHandler(runtime, report, {
      every: "1h",
      input: (slot) => ({ hour: slot.toISOString() }),
    });
    return { slots, journal, runtime, report, handler };
  };

  test("rejects an event of another source", async () => {
    const { handler } = hourly();
    for (const event of [undefined, null, {}, { time: "noon" }] as never[]) {
      await expect(handler(event, within())).rejects.toThrow("it is not from EventBridge");
    }
  });

  test("and a sweep reject within the invocation when the journal does not answer", async () => {
    const { report, handler } = hourly();
    const never = () => new Promise<never>(() => {});
    const journal = { ...memoryJournal(), claim: never, claimDue: never, purge: never };
    const runtime = createRuntime({ journal, workflows: [report] });
    const hanging = scheduleHandler(runtime, report, {
      ...{ every: "1h", reserve: 600 },
      input: () => ({ hour: "" }),
    });
    const late = /a store has not answered/;
    const event = { time: "2026-01-02T03:00:02Z" };
    await expect(hanging(event, within(1_000))).rejects.toThrow(late);
    const sweep = sweepHandler(runtime, { reserve: 600 });
    await expect(sweep({}, within(3_000))).rejects.toThrow(late);
    await handler(event, within());
  });

  test("runs once per slot, however many events the slot has", async () => {
    const { slots, journal, handler } = hourly();
    const fire = (time: string) => handler({ time }, within());
    const all = ["2026-01-02T03:00:02Z", "2026-01-02T03:59:59Z", "2026-01-02T04:00:00Z"].map(fire);
    const outcomes = await Promise.all(all);
    expect(outcomes.map(({ runId }) => runId)).toEqual([
      "report:2026-01-02T03:00:00.000Z",
      "report:2026-01-02T03:00:00.000Z",
      "report:2026-01-02T04:00:00.000Z",
    ]);
    expect(slots).toHaveLength(2);
    expect(await journal.list()).toHaveLength(2);
  });

  test("returns a result that Lambda can serialise as JSON", async () => {
    const count = workflow({ name: "count", version: 1, input: z.boolean() }, async (_, fails) => {
      if (fails) throw new TerminalError("NONE", "nothing", { data: { left: 2n } });
      return { many: 2n ** 60n, at: new Date(0) };
    });
    const fire = (fails: boolean) => {
      const runtime = createRuntime({ journal: memoryJournal() });
      const handler = scheduleHandler(runtime, count, { input: () => fails });
      return handler({ time: "2026-01-02T03:00:00Z" }, within());
    };
    expect(JSON.parse(JSON.stringify(await fire(false)))).toMatchObject({
      ...{ status: "completed", output: { many: "1152921504606846976", at: new Date(0).toJSON() } },
    });
    expect(JSON.parse(JSON.stringify(await fire(true)))).toMatchObject({
      ...{ status: "failed", error: { code: "NONE", data: { left: "2" } } },
    });
  });

  test("shows no credentials in the error of a blocked run", async () => {
    const { report } = hourly();
    const runtime = createRuntime({ journal: memoryJournal() });
    const error = { name: "Error", message: "mysql://root:hidden@db/shop is away" };
    const blocked = { runId: "a", status: "blocked", error, retryIn: 1 } as never;
    vi.spyOn(runtime, "execute").mockResolvedValue(blocked);
    const handler = scheduleHandler(runtime, report, { input: () => ({ hour: "" }) });
    expect(await handler({ time: "2026-01-02T03:00:00Z" }, within())).toMatchObject({
      error: { message: "mysql://db/shop is away" },
    });
  });

  test("leaves a waiting run to a sweep", async () => {
    const { runtime, journal, report, handler } = hourly();
    const { runId, status } = await handler({ time: "2026-01-02T03:00:00Z" }, within());
    expect(status).toBe("suspended");
    const sweep = sweepHandler(createRuntime({ journal, workflows: [report] }));
    expect(await sweep({}, within())).toMatchObject({ completed: 0, suspended: 0, purged: 0 });
    await runtime.signal(runId, "approved", {}, { dedupeId: "1" });
    expect(await sweep({}, within())).toMatchObject({ completed: 1 });
    expect(await sweep({}, within())).toMatchObject({ completed: 0 });
  });

  test("rejects when the run did not start, so that Lambda retries", async () => {
    const { runtime, report, handler } = hourly();
    await expect(handler({ time: "2026-01-02T03:00:00Z" }, within(0))).rejects.toThrow("left");
    await expect(handler({ time: "soon" }, within())).rejects.toThrow(TypeError);
    const execute = () => Promise.reject(new StoreUnavailableError("here", "away"));
    const away = { ...runtime, journal: runtime.journal, workflows: [], execute };
    const input = () => ({ hour: "" });
    const other = scheduleHandler(() => away, report, { input });
    await expect(other({ time: "2026-01-02T03:00:00Z" }, within())).rejects.toThrow("away");
  });
});

describe.concurrent("a sweep", () => {
  const Input = z.object({ n: z.number() });

  test("resumes all due runs with bounded concurrency, and stops in time", async () => {
    const journal = memoryJournal();
    let [now, most] = [0, 0];
    const wf = workflow({ name: "due", version: 1, input: Input, id: ({ n }) => `${n}` }, (ctx) =>
      ctx.step("work", async () => {
        now += 1;
        most = Math.max(most, now);
        await pause(200);
        now -= 1;
      }),
    );
    const runtime = createRuntime({ journal, workflows: [wf] });
    for (let n = 0; n < 250; n += 1) await runtime.start(wf, { n });
    const short = sweepHandler(runtime, { concurrency: 20, reserve: 300 });
    const { completed } = await short({}, within(2_300));
    expect(completed).toBeLessThan(250);
    const swept = await short({}, within());
    expect(swept).toMatchObject({ completed: 250 - completed, refused: 0 });
    expect(most).toBe(20);
  });

  test("handles the operations of entities that were told", async () => {
    const runtime = createRuntime({ journal: memoryJournal() });
    const mine = runtime.entity(account, "ada");
    await mine.tell("deposit", 5, { operationId: "1" });
    expect(await sweepHandler(runtime)({}, within())).toMatchObject({ delivered: 1 });
    expect(await mine.state()).toMatchObject({ balance: 5 });
  });

  test("handles operations and deletes what is over although runs are due all the time", async () => {
    const runtime = createRuntime({ journal: memoryJournal() });
    const mine = runtime.entity(account, "busy");
    await mine.tell("deposit", 5, { operationId: "1" });
    const purge = vi.spyOn(runtime.journal, "purge");
    const execute = async () => {
      await pause(20);
      return { runId: "a", status: "completed", output: null } as never;
    };
    runtime.claimDue = async () => [{ runId: "a", part: 1, execute }];
    const report = await sweepHandler(runtime, { reserve: 500 })({}, within(7_500));
    expect(report).toMatchObject({ delivered: 1 });
    expect(report.completed).toBeGreaterThan(20);
    expect(purge).toHaveBeenCalled();
  });

  test("ends with its report when the time is over for an operation that it handles", async () => {
    const runtime = createRuntime({ journal: memoryJournal() });
    const { entities } = runtime.journal;
    const mine = runtime.entity(account, "slow");
    await mine.tell("deposit", 5, { operationId: "1" });
    vi.spyOn(entities, "visit").mockImplementation(
      (_id, _visit, signal) =>
        new Promise((_, reject) => {
          signal?.addEventListener("abort", () => reject(signal.reason));
        }),
    );
    expect(await sweepHandler(runtime, { reserve: 500 })({}, within(2_000))).toMatchObject({
      delivered: 0,
    });
  });

  test("resumes the other runs when one cannot be resumed", async () => {
    const memory = memoryJournal();
    const finish: typeof memory.finish = async (run, request) => {
      if (run.runId === "2") throw new StoreUnavailableError("here", "away");
      return memory.finish(run, request);
    };
    const body = async () => "done";
    const wf = workflow({ name: "swept", version: 1, input: Input, id: ({ n }) => `${n}` }, body);
    const runtime = createRuntime({ journal: { ...memory, finish }, workflows: [wf] });
    for (let n = 0; n < 5; n += 1) await runtime.start(wf, { n });
    const errors: string[] = [];
    const sweep = sweepHandler(runtime, { onError: (runId) => void errors.push(runId) });
    expect(await sweep({}, within())).toMatchObject({ completed: 4, refused: 1 });
    expect(errors).toEqual(["2"]);
  });

  test("tries a run once whose next step needs more time than the sweep has", async () => {
    const journal = memoryJournal();
    const wf = workflow({ name: "long", version: 1, input: Input, id: ({ n }) => `${n}` }, (ctx) =>
      ctx.step("work", { budget: "1m" }, async () => 1),
    );
    let taken = 0;
    const onEvent = ({ type }: RunEvent) => {
      if (type === "taken") taken += 1;
    };
    const runtime = createRuntime({ journal, workflows: [wf], onEvent });
    await runtime.start(wf, { n: 1 });
    taken = 0;
    expect(await sweepHandler(runtime)({}, within(20_000))).toMatchObject({ suspended: 1 });
    expect(taken).toBe(1);
  });

  test("executes all histories of a run that continues as new", async () => {
    const journal = memoryJournal();
    const wf = workflow(
      { name: "long-lived", version: 1, input: Input, id: () => "long-lived" },
      async (ctx, { n }) => {
        if (n < 5) return ctx.continueAsNew({ n: n + 1 });
        return n;
      },
    );
    const runtime = createRuntime({ journal, workflows: [wf] });
    await runtime.start(wf, { n: 1 });
    expect(await sweepHandler(runtime)({}, within())).toMatchObject({ completed: 1, suspended: 4 });
  });

  test("resumes the due runs before it rejects because schedules could not be started", async () => {
    const journal = memoryJournal();
    const wf = workflow({ name: "due", version: 1, input: Input }, async () => 1);
    const runtime = createRuntime({ journal, workflows: [wf] });
    const { runId } = await runtime.start(wf, { n: 1 });
    const down = new StoreUnavailableError("the journal", "no answer");
    runtime.startScheduled = () => Promise.reject(down);
    await expect(sweepHandler(runtime)({}, within())).rejects.toBe(down);
    expect(await journal.find(runId)).toMatchObject({ status: "completed" });
  });

  test("ignores errors of its listeners", async () => {
    const journal = memoryJournal();
    const wf = workflow(
      { name: "heard", version: 1, input: Input, id: ({ n }) => `${n}` },
      async () => 1,
    );
    const runtime = createRuntime({ journal, workflows: [wf] });
    for (let n = 0; n < 3; n += 1) await runtime.start(wf, { n });
    const onOutcome = () => {
      throw new Error("no log");
    };
    const swept = await sweepHandler(runtime, { onOutcome, onError: onOutcome })({}, within());
    expect(swept).toMatchObject({ completed: 3, refused: 0 });
  });

  test("rejects when the journal does not tell which runs are due", async () => {
    const runtime = createRuntime({ journal: memoryJournal() });
    const down = new StoreUnavailableError("the journal", "no answer");
    runtime.claimDue = () => Promise.reject(down);
    await expect(sweepHandler(runtime)({}, within())).rejects.toBe(down);
  });

  test("deletes ended runs after their retention", async () => {
    const journal = memoryJournal();
    const wf = workflow(
      { name: "kept", version: 1, input: Input, id: ({ n }) => `${n}`, keep: 1 },
      async () => 1,
    );
    const runtime = createRuntime({ journal, workflows: [wf] });
    for (let n = 0; n < 150; n += 1) await runtime.execute(wf, { n });
    await pause(20);
    expect(await sweepHandler(runtime)({}, within())).toMatchObject({ purged: 150 });
  });
});
