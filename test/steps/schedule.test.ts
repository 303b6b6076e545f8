import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { sql } from "../../core/database/sql.ts";
import { encode } from "../../core/steps/codec.ts";
import { Codec, createRuntime, Schedule, workflow } from "../../core/steps/index.ts";
import { schedulePosition } from "../../core/steps/scheduler.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { sweepHandler } from "../../functions/lambda/index.ts";
import { runWorker, type WorkerEvent } from "../../functions/worker/index.ts";
import { temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

const at = (time: string) => Date.parse(time);
const input = (slot: Date) => ({ slot: slot.toISOString() });
const Slot = z.object({ slot: z.string() });

type Options = Omit<ConstructorParameters<typeof Schedule<{ slot: string }>>[1], "input">;

/** The record of the last slot of the workflow `report`. */
const position = { entity: "lockstep.schedule", key: "report" };

function scheduled(pattern: string, options: Options = {}, version = 1) {
  const schedule = new Schedule(pattern, { input, ...options });
  return workflow({ name: "report", version, input: Slot, schedule }, async (_, { slot }) => slot);
}

describe("a schedule", () => {
  test.each(["61 * * * *", "* * * * * *", "", "soon", "2026-01-01T00:00:00", "0 0 30 2 *"])(
    "refuses %j as a cron pattern, and names it",
    (pattern) => {
      expect(() => new Schedule(pattern, { input })).toThrow(TypeError);
      expect(() => new Schedule(pattern, { input })).toThrow(JSON.stringify(pattern));
    },
  );

  test("refuses an unknown time zone, and names it", () => {
    const create = () => new Schedule("0 6 * * *", { input, timezone: "Europe/Atlantis" });
    expect(create).toThrow(TypeError);
    expect(create).toThrow('"Europe/Atlantis"');
  });

  test("refuses a name of a workflow that leaves no room for the slot in the run's id", () => {
    const schedule = new Schedule("@daily", { input });
    const create = (length: number) =>
      workflow({ name: "n".repeat(length), version: 1, input: Slot, schedule }, async () => {});
    expect(() => create(231)).toThrow(RangeError);
    expect(create(230).name).toHaveLength(230);
  });

  test("keeps the hour of its time zone when clocks change", () => {
    const daily = new Schedule("0 6 * * *", { input, timezone: "Europe/Berlin", catchUp: "all" });
    const march = daily.missed(at("2026-03-28T00:00Z"), at("2026-03-30T00:00Z"));
    expect(march).toEqual([new Date("2026-03-28T05:00Z"), new Date("2026-03-29T04:00Z")]);
    const october = daily.missed(at("2026-10-24T00:00Z"), at("2026-10-26T00:00Z"));
    expect(october).toEqual([new Date("2026-10-24T04:00Z"), new Date("2026-10-25T05:00Z")]);
  });

  test("has a daily slot once although its time is skipped or occurs twice", () => {
    const daily = new Schedule("30 2 * * *", { input, timezone: "Europe/Berlin", catchUp: "all" });
    const march = daily.missed(at("2026-03-28T12:00Z"), at("2026-03-29T12:00Z"));
    expect(march).toHaveLength(1);
    const october = daily.missed(at("2026-10-24T12:00Z"), at("2026-10-25T12:00Z"));
    expect(october).toHaveLength(1);
  });

  test.each(["*/20 * * * *", "30 2 * * *", "0 1-3 * * *", "15 2 * * 0"])(
    "has the same slots forwards and backwards through a change of the clocks: %s",
    (pattern) => {
      const options = { input, timezone: "Europe/Berlin", catchUp: "all" } as const;
      const schedule = new Schedule(pattern, options);
      for (const day of ["2026-03-28", "2026-10-24"]) {
        const [from, to] = [at(`${day}T00:00Z`), at(`${day}T00:00Z`) + 3 * 86_400_000];
        const forwards: Date[] = [];
        for (let slot = schedule.next(from); slot <= to; slot = schedule.next(slot)) {
          forwards.push(new Date(slot));
        }
        expect(forwards.length).toBeGreaterThan(0);
        expect(schedule.missed(from, to)).toEqual(forwards);
      }
    },
  );
});

describe("with a virtual clock", () => {
  beforeEach(() => {
    vi.useFakeTimers({ now: at("2026-01-02T03:04:05Z") });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const started = async (options: Options, downtime: number, pattern = "* * * * *") => {
    const journal = memoryJournal();
    const start = () =>
      createRuntime({ journal, workflows: [scheduled(pattern, options)] }).startScheduled();
    expect((await start()).started).toEqual([]);
    vi.setSystemTime(Date.now() + downtime);
    const { started } = await start();
    expect((await start()).started).toEqual([]);
    return started;
  };

  test("a schedule begins with the first slot after it was first seen", async () => {
    const runtime = createRuntime({
      journal: memoryJournal(),
      workflows: [scheduled("*/5 * * * *")],
    });
    expect(await runtime.startScheduled()).toMatchObject({ started: [], nextIn: 55_000 });
    vi.setSystemTime(at("2026-01-02T03:05:00Z"));
    const { started, nextIn } = await runtime.startScheduled();
    expect(started).toEqual(["report:2026-01-02T03:05:00.000Z"]);
    expect(nextIn).toBe(300_000);
    const run = await runtime.resume("report:2026-01-02T03:05:00.000Z");
    expect(run).toMatchObject({ status: "completed", output: "2026-01-02T03:05:00.000Z" });
  });

  test("after a downtime, the last missed slot is started", async () => {
    expect(await started({}, 3_600_000)).toEqual(["report:2026-01-02T04:04:00.000Z"]);
  });

  test("with `all`, the missed slots are started, the last 1,000 at most", async () => {
    expect(await started({ catchUp: "all" }, 120_000)).toEqual([
      "report:2026-01-02T03:05:00.000Z",
      "report:2026-01-02T03:06:00.000Z",
    ]);
    const many = await started({ catchUp: "all" }, 86_400_000);
    expect(many).toHaveLength(1_000);
    expect(many.at(-1)).toBe("report:2026-01-03T03:06:00.000Z");
  });

  test("slots whose inputs have the same id of the workflow are one run", async () => {
    const hour = (slot: Date) => ({ slot: slot.toISOString().slice(0, 13) });
    const schedule = new Schedule("*/20 * * * *", { input: hour, catchUp: "all" });
    const id = ({ slot }: { slot: string }) => `hour ${slot}`;
    const report = workflow(
      { name: "report", version: 1, input: Slot, schedule, id },
      async () => {},
    );
    const runtime = createRuntime({ journal: memoryJournal(), workflows: [report] });
    await runtime.startScheduled();
    vi.setSystemTime(at("2026-01-02T04:45:00Z"));
    const ids = ["hour 2026-01-02T03", "hour 2026-01-02T04"];
    expect((await runtime.startScheduled()).started).toEqual(ids);
    vi.setSystemTime(at("2026-01-02T05:05:00Z"));
    await runtime.startScheduled();
    expect(await runtime.journal.list()).toHaveLength(3);
  });

  test("a slot whose id belongs to a run with another input is reported once, and holds up no later one", async () => {
    const ofDay = (slot: Date) => ({ slot: slot.toISOString() });
    const schedule = new Schedule("* * * * *", { input: ofDay, catchUp: "all" });
    const id = ({ slot }: { slot: string }) => `day ${slot.slice(0, 10)}`;
    const journal = memoryJournal();
    const runtimeOf = (onConflict: "reject" | "return-existing") => {
      const definition = { name: "report", version: 1, input: Slot, schedule, id, onConflict };
      const report = workflow(definition, async (_, { slot }) => slot);
      return createRuntime({ journal, workflows: [report] });
    };
    const runtime = runtimeOf("reject");
    await runtime.startScheduled();
    const conflict = (time: string) => ({
      runId: `report:${time}:00.000Z`,
      error: { code: "INPUT_CONFLICT", message: expect.stringContaining("day 2026-01-02") },
    });
    vi.setSystemTime(at("2026-01-02T03:06:00Z"));
    expect(await runtime.startScheduled()).toMatchObject({
      started: ["day 2026-01-02"],
      refused: [conflict("2026-01-02T03:06")],
    });
    const first = { output: "2026-01-02T03:05:00.000Z" };
    expect(await runtime.resume("day 2026-01-02")).toMatchObject(first);
    vi.setSystemTime(at("2026-01-02T03:07:00Z"));
    const refused = [conflict("2026-01-02T03:07")];
    expect(await runtime.startScheduled()).toMatchObject({ started: [], refused });
    expect(await runtime.startScheduled()).toMatchObject({ started: [], refused: [] });
    vi.setSystemTime(at("2026-01-02T03:08:00Z"));
    const started = ["day 2026-01-02"];
    const existing = await runtimeOf("return-existing").startScheduled();
    expect(existing).toMatchObject({ started, refused: [] });
    vi.setSystemTime(at("2026-01-03T00:00:00Z"));
    expect((await runtime.startScheduled()).started).toEqual(["day 2026-01-03"]);
  });

  test("a slot without a valid input holds up no later one, and is started when its input is valid", async () => {
    const journal = memoryJournal();
    let isFixed = false;
    const schedule = new Schedule("* * * * *", {
      input: (slot) => ({ slot: slot.getMinutes() === 5 && !isFixed ? 5 : "on time" }) as never,
      catchUp: "all",
    });
    const report = workflow(
      { name: "report", version: 1, input: Slot, schedule, keep: 1_000 },
      async () => {},
    );
    const runtime = createRuntime({ journal, workflows: [report] });
    await runtime.startScheduled();
    const [bad, ...good] = [5, 6, 7].map((minute) => `report:2026-01-02T03:0${minute}:00.000Z`);
    vi.setSystemTime(at("2026-01-02T03:07:00Z"));
    const first = await runtime.startScheduled();
    expect(first).toMatchObject({ started: good, refused: [{ runId: bad }] });
    for (const runId of good) await runtime.resume(runId);
    await vi.advanceTimersByTimeAsync(2_000);
    await journal.purge(100);
    // The later slots are not started again although their runs were deleted.
    const second = await runtime.startScheduled();
    expect(second).toMatchObject({ started: [], refused: [{ runId: bad }] });
    isFixed = true;
    expect(await runtime.startScheduled()).toMatchObject({ started: [bad], refused: [] });
    expect(await runtime.startScheduled()).toMatchObject({ started: [], refused: [] });
  });

  test("a changed pattern starts no slot from before it was first seen", async () => {
    const journal = memoryJournal();
    const start = (pattern: string) =>
      createRuntime({ journal, workflows: [scheduled(pattern)] }).startScheduled();
    await start("0 3 * * *");
    vi.setSystemTime(at("2026-01-03T09:00:00Z"));
    expect((await start("0 3 * * *")).started).toHaveLength(1);
    vi.setSystemTime(at("2026-01-03T20:00:00Z"));
    expect((await start("0 18 * * *")).started).toEqual([]);
    vi.setSystemTime(at("2026-01-04T19:00:00Z"));
    expect((await start("0 18 * * *")).started).toEqual(["report:2026-01-04T18:00:00.000Z"]);
  });

  test("processes with the old and the new pattern of a schedule lose no slot", async () => {
    const journal = memoryJournal();
    const start = async (pattern: string) =>
      (await createRuntime({ journal, workflows: [scheduled(pattern)] }).startScheduled()).started;
    await start("*/2 * * * *");
    await start("1-59/2 * * * *");
    const started: string[] = [];
    for (let minute = 5; minute < 9; minute += 1) {
      vi.setSystemTime(at(`2026-01-02T03:0${minute}:00Z`));
      started.push(...(await start("*/2 * * * *")), ...(await start("1-59/2 * * * *")));
    }
    expect(started.map((runId) => runId.slice(20, 23))).toEqual([":05", ":06", ":07", ":08"]);
  });

  test("a schedule goes on from the position of an earlier version", async () => {
    const journal = memoryJournal();
    const runtime = createRuntime({ journal, workflows: [scheduled("* * * * *")] });
    const before = runtime.entity(schedulePosition, "report");
    await before.call("begin", at("2026-01-02T03:02:30Z"), { operationId: "1" });
    expect((await runtime.startScheduled()).started).toEqual(["report:2026-01-02T03:04:00.000Z"]);
  });

  test("one schedule that cannot be read stops no other one, and is reported", async () => {
    const journal = memoryJournal();
    const codec = Codec.encrypted({ keys: { one: new Uint8Array(32).fill(1) }, current: "one" });
    const unreadable = workflow(
      { name: "unreadable", version: 1, input: Slot, schedule: new Schedule("@daily", { input }) },
      async () => {},
    );
    const workflows = [unreadable, scheduled("* * * * *")];
    await createRuntime({ journal, workflows: [unreadable], codec }).startScheduled();
    const runtime = createRuntime({ journal, workflows });
    const refused = [{ runId: "unreadable", error: { code: "UNREADABLE_VALUE" } }];
    expect(await runtime.startScheduled()).toMatchObject({ started: [], refused });
    vi.setSystemTime(at("2026-01-02T03:05:00Z"));
    const { started } = await runtime.startScheduled();
    expect(started).toEqual(["report:2026-01-02T03:05:00.000Z"]);
    const events: WorkerEvent[] = [];
    const end = new AbortController();
    const worker = runWorker({
      runtime,
      signal: end.signal,
      onEvent: (event) => void events.push(event),
    });
    await vi.advanceTimersByTimeAsync(1_000);
    end.abort();
    await vi.advanceTimersByTimeAsync(1_000);
    await worker;
    expect(events.filter(({ type }) => type === "refused")).toMatchObject(refused);
  });

  test("a position in the future is reported: a process with a wrong clock has moved it", async () => {
    const journal = memoryJournal();
    const runtime = createRuntime({ journal, workflows: [scheduled("* * * * *")] });
    const before = runtime.entity(schedulePosition, "report");
    await before.call("begin", at("2027-01-02T03:04:00Z"), { operationId: "1" });
    const { refused } = await runtime.startScheduled();
    expect(refused).toMatchObject([{ runId: "report" }]);
    expect(String(refused[0]?.error)).toContain("stands still until 2027-01-02T03:04:00.000Z");
  });

  test("with `none`, a slot is started within its first 5 minutes alone", async () => {
    const hourly = "0 * * * *";
    expect(await started({ catchUp: "none" }, 3_600_000, hourly)).toEqual([
      "report:2026-01-02T04:00:00.000Z",
    ]);
    expect(await started({ catchUp: "none" }, 3_900_000, hourly)).toEqual([]);
  });

  test("a slot whose run was deleted after its time is not started again", async () => {
    const journal = memoryJournal();
    const weekly = scheduled("0 0 * * 0");
    const start = () => createRuntime({ journal, workflows: [weekly] }).startScheduled();
    await start();
    vi.setSystemTime(at("2026-01-04T00:00:00Z"));
    const [runId = ""] = (await start()).started;
    await createRuntime({ journal, workflows: [weekly] }).resume(runId);
    vi.setSystemTime(at("2026-01-07T00:00:00Z"));
    await vi.advanceTimersByTimeAsync(2 * 86_400_000);
    expect(await journal.purge(100)).toBeGreaterThan(0);
    expect(await journal.find(runId)).toBeUndefined();
    expect((await start()).started).toEqual([]);
  });

  test("a slot is started in time although a process died while it recorded the one before", async () => {
    const journal = memoryJournal();
    const runtime = createRuntime({ journal, workflows: [scheduled("* * * * *")] });
    await runtime.startScheduled();
    const message = { operationId: "lost", handler: "pass", input: encode(0) };
    const lost = { message: { ...message, inputHash: "0".repeat(64) }, ttl: 30_000 };
    expect((await journal.entities.visit(position, lost)).claimed).toBeDefined();
    vi.setSystemTime(at("2026-01-02T03:05:00Z"));
    const starting = runtime.startScheduled();
    await vi.advanceTimersByTimeAsync(5_000);
    expect(await starting).toMatchObject({ started: ["report:2026-01-02T03:05:00.000Z"] });
    await vi.advanceTimersByTimeAsync(40_000);
    expect(await runtime.deliver()).toBe(2);
    expect(await runtime.startScheduled()).toMatchObject({ started: [] });
  });

  test("the newest version's schedule counts, and a version without one ends it", async () => {
    const journal = memoryJournal();
    const old = scheduled("* * * * *");
    const next = workflow({ name: "report", version: 2, input: Slot }, async () => {});
    await createRuntime({ journal, workflows: [old] }).startScheduled();
    vi.setSystemTime(Date.now() + 60_000);
    const both = createRuntime({ journal, workflows: [next, old] });
    expect(await both.startScheduled()).toMatchObject({
      started: [],
      nextIn: Number.POSITIVE_INFINITY,
    });
  });

  test("a worker starts each slot at its time, and reports one without a valid input", async () => {
    const end = new AbortController();
    const bad = new Schedule<{ slot: string }>("*/2 * * * *", { input: () => ({ slot: "" }) });
    const Long = z.object({ slot: z.string().min(1) });
    const broken = workflow(
      { name: "broken", version: 1, input: Long, schedule: bad },
      async () => {},
    );
    const events: WorkerEvent[] = [];
    const runtime = createRuntime({
      journal: memoryJournal(),
      workflows: [scheduled("* * * * *"), broken],
    });
    const worker = runWorker({
      runtime,
      signal: end.signal,
      onEvent: (event) => void events.push(event),
    });
    await vi.advanceTimersByTimeAsync(180_000);
    end.abort();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await worker).toMatchObject({ completed: 3, isClean: true });
    const refused = events.filter(({ type }) => type === "refused");
    expect(refused[0]).toMatchObject({
      runId: "broken:2026-01-02T03:06:00.000Z",
      error: { code: "INVALID" },
    });
  });
});

describe("with a virtual date", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["Date"], now: at("2026-01-02T03:04:05Z") });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test("two workers on SQLite start and execute each slot once", async () => {
    const { file, remove } = await temporaryFile();
    onTestFinished(remove);
    await using first = await openSqlite(file);
    await using second = await openSqlite(file);
    const executed: string[] = [];
    const schedule = new Schedule("* * * * *", { input });
    const report = workflow(
      { name: "report", version: 1, input: Slot, schedule },
      (ctx, { slot }) => ctx.step("write", async () => void executed.push(slot)),
    );
    const runtimes = [first, second].map(({ journal }) =>
      createRuntime({ journal, workflows: [report] }),
    );
    const end = new AbortController();
    const workers = runtimes.map((runtime) => runWorker({ runtime, signal: end.signal }));
    await until(async () => (await first.journal.entities.read(position)).state !== undefined);
    for (let minute = 5; minute < 15; minute += 1) {
      vi.setSystemTime(at(`2026-01-02T03:${String(minute).padStart(2, "0")}:00Z`));
      await Promise.all(runtimes.map((runtime) => runtime.startScheduled()));
    }
    await until(async () => (await first.journal.list({ status: "completed" })).length === 10);
    end.abort();
    await Promise.all(workers);
    expect(await first.journal.list()).toHaveLength(10);
    expect(new Set(executed).size).toBe(10);
    expect(executed).toHaveLength(10);
  });

  test("a schedule that a clock has moved hours ahead is reported, and its last slot executed once", async () => {
    const runtime = createRuntime({
      journal: memoryJournal(),
      workflows: [scheduled("* * * * *")],
    });
    await runtime.startScheduled();
    vi.setSystemTime(at("2026-01-02T05:05:00Z"));
    const started = ["report:2026-01-02T05:05:00.000Z"];
    expect(await runtime.startScheduled()).toMatchObject({ started });
    expect(await runtime.startScheduled()).toMatchObject({ started: [] });
    vi.setSystemTime(at("2026-01-02T03:05:00Z"));
    const { refused } = await runtime.startScheduled();
    expect(String(refused[0]?.error)).toContain("stands still until 2026-01-02T05:05:00.000Z");
  });

  test("a schedule that stands still goes on when an operator has reset its position", async () => {
    const { file, remove } = await temporaryFile();
    onTestFinished(remove);
    await using shop = await openSqlite(file);
    const runtime = createRuntime({ journal: shop.journal, workflows: [scheduled("* * * * *")] });
    const before = runtime.entity(schedulePosition, "report");
    await before.call("begin", at("2099-01-02T03:04:00Z"), { operationId: "1" });
    expect((await runtime.startScheduled()).refused).toHaveLength(1);
    // As docs/operations.md says.
    await shop.database.batch([
      sql`
        UPDATE lockstep_entity SET state = NULL
        WHERE entity = 'lockstep.schedule' AND entity_key = 'report'`,
    ]);
    expect(await runtime.startScheduled()).toMatchObject({ started: [], refused: [] });
    vi.setSystemTime(at("2026-01-02T03:05:00Z"));
    const { started } = await runtime.startScheduled();
    expect(started).toEqual(["report:2026-01-02T03:05:00.000Z"]);
  });

  test("a sweep starts the slots that have begun, and executes their runs", async () => {
    const none = new Schedule<{ slot: string }>("* * * * *", {
      input: () => {
        throw new Error("no input");
      },
    });
    const broken = workflow(
      { name: "broken", version: 1, input: Slot, schedule: none },
      async () => {},
    );
    const journal = memoryJournal();
    const refused: string[] = [];
    const sweep = () => {
      const runtime = createRuntime({ journal, workflows: [broken, scheduled("* * * * *")] });
      const onError = (runId: string) => void refused.push(runId);
      return sweepHandler(runtime, { onError })({}, { getRemainingTimeInMillis: () => 20_000 });
    };
    expect(await sweep()).toMatchObject({ scheduled: 0, completed: 0, refused: 0 });
    vi.setSystemTime(at("2026-01-02T03:05:00Z"));
    expect(await sweep()).toMatchObject({ scheduled: 1, completed: 1, refused: 1 });
    expect(refused).toEqual(["broken:2026-01-02T03:05:00.000Z"]);
    expect(await sweep()).toMatchObject({ scheduled: 0, completed: 0, refused: 1 });
    expect(await journal.list()).toMatchObject([{ runId: "report:2026-01-02T03:05:00.000Z" }]);
  });
});
