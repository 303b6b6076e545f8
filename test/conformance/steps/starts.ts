import { describe, expect, test } from "vitest";
import { z } from "zod";
import { type Runtime, workflow } from "../../../core/steps/index.ts";
import { until } from "../../support/until.ts";
import type { StepsHarness } from "./harness.ts";

/** Starts that share a run. */
export function describeStarts({ newId, runtime }: StepsHarness): void {
  const report = workflow(
    { name: "report", version: 1, input: z.object({ n: z.number() }) },
    (ctx) => ctx.waitFor("go", z.string()),
  );
  const save = workflow(
    { name: "save", version: 1, input: z.object({ text: z.string() }) },
    async (_, { text }) => text,
  );

  let own: Runtime | undefined;
  // One for all tests: each runtime of the harness has connections of its own.
  const shared = () => {
    own ??= runtime();
    return own;
  };

  test("a start creates the run, and leaves a due one to its worker", async () => {
    const rt = shared();
    const id = newId();
    const due = { runId: id, status: "suspended", reason: "deadline", wakeIn: 0 };
    expect(await rt.start(report, { n: 1 }, { id })).toEqual(due);
    const { epoch } = (await rt.journal.find(id)) ?? {};
    expect(await rt.start(report, { n: 1 }, { id })).toEqual(due);
    expect(await rt.journal.find(id)).toMatchObject({ epoch, status: "parked" });
    await expect(rt.start(report, { n: 2 }, { id })).rejects.toMatchObject({
      code: "INPUT_CONFLICT",
    });
  });

  describe("a singleton", () => {
    test("is one open run per key, and a new one after its end", async () => {
      const rt = shared();
      const key = newId();
      const starts = await Promise.all(
        Array.from({ length: 8 }, (_, n) => rt.start(report, { n }, { singleton: key })),
      );
      const [first] = starts;
      if (!first) throw new Error("no start");
      expect(new Set(starts.map(({ runId }) => runId))).toEqual(new Set([first.runId]));
      expect(first).toMatchObject({ status: "suspended", reason: "deadline", wakeIn: 0 });
      const other = await rt.start(report, { n: 1 }, { singleton: `${key} of another` });
      expect(other.runId).not.toBe(first.runId);
      expect(await rt.resume(first.runId)).toMatchObject({ status: "suspended", reason: "signal" });
      const again = () => rt.start(report, { n: 9 }, { singleton: key });
      expect(await again()).toMatchObject({ runId: first.runId, reason: "signal" });
      await rt.signal(first.runId, "go", "now", { dedupeId: "1" });
      expect(await rt.resume(first.runId)).toMatchObject({ status: "completed", output: "now" });
      const next = await again();
      expect(next.runId).not.toBe(first.runId);
      expect(await again()).toMatchObject({ runId: next.runId });
    });

    test("that was cancelled refuses starts until its undos have ended", async () => {
      const rt = shared();
      const key = newId();
      const start = () => rt.start(report, { n: 1 }, { singleton: key });
      const { runId } = await start();
      await rt.cancel(runId);
      const refused = { code: "RUN_CANCELLED", message: expect.stringContaining(runId) };
      await expect(start()).rejects.toMatchObject(refused);
      expect(await rt.resume(runId)).toMatchObject({ error: { code: "RUN_CANCELLED" } });
      expect((await start()).runId).not.toBe(runId);
    });

    test("answers a run that another process executes as busy", async () => {
      const rt = shared();
      const { promise, resolve } = Promise.withResolvers<void>();
      const held = workflow({ name: "held", version: 1, input: z.null() }, (ctx) =>
        ctx.step("work", () => promise),
      );
      const key = newId();
      const { runId } = await rt.start(held, null, { singleton: key });
      const executing = rt.resume(runId);
      await until(async () => (await rt.journal.find(runId))?.status === "running");
      const second = await rt.start(held, null, { singleton: key });
      expect(second).toMatchObject({ runId, status: "busy" });
      resolve();
      await executing;
    });
  });

  describe("a debounced start", () => {
    test("shares its run with later ones, and the latest input wins", async () => {
      const rt = shared();
      const debounce = { key: newId(), for: "1h" as const };
      const first = await rt.start(save, { text: "a" }, { debounce });
      expect(first).toMatchObject({ status: "suspended", reason: "debounce" });
      expect(first).toHaveProperty("wakeIn", expect.closeTo(3_600_000, -4));
      expect(await rt.resume(first.runId)).toMatchObject({ reason: "debounce" });
      const soon = { debounce: { ...debounce, for: 30 } };
      const last = await rt.start(save, { text: "b" }, soon);
      expect(last.runId).toBe(first.runId);
      const ended = await until(async () => {
        const outcome = await rt.resume(first.runId);
        return outcome.status === "completed" && outcome;
      });
      expect(ended.output).toBe("b");
    });

    test("begins after its pause, although its run has got a signal", async () => {
      const rt = shared();
      const debounce = { key: newId(), for: "1h" as const };
      const first = await rt.start(save, { text: "a" }, { debounce });
      expect(await rt.signal(first.runId, "any", 1, { dedupeId: "1" })).toBe("delivered");
      expect(await rt.resume(first.runId)).toMatchObject({ reason: "debounce" });
      const last = await rt.start(save, { text: "b" }, { debounce });
      expect(last.runId).toBe(first.runId);
    });

    test("and a singleton with the same key know nothing of each other", async () => {
      const rt = shared();
      const key = newId();
      const singleton = () => rt.start(save, { text: "a" }, { singleton: key });
      const debounced = () => rt.start(save, { text: "b" }, { debounce: { key, for: "1h" } });
      const runIds = [await singleton(), await debounced()].map(({ runId }) => runId);
      expect(new Set(runIds).size).toBe(2);
      const again = [await singleton(), await debounced()].map(({ runId }) => runId);
      expect(again).toEqual(runIds);
    });

    test("after the cancellation of its run starts a new run", async () => {
      const rt = shared();
      const debounce = { key: newId(), for: 30 };
      const first = await rt.start(save, { text: "a" }, { debounce });
      await rt.cancel(first.runId);
      const second = await rt.start(save, { text: "b" }, { debounce });
      const ended = await until(async () => {
        const outcome = await rt.resume(second.runId);
        return outcome.status === "completed" && outcome;
      });
      expect(ended.output).toBe("b");
    });

    test("after the begin of its run starts a new run", async () => {
      const rt = shared();
      const debounce = { key: newId(), for: 0 };
      const first = await rt.start(report, { n: 1 }, { debounce });
      expect(await until(() => rt.resume(first.runId))).toMatchObject({ reason: "signal" });
      const second = await rt.start(report, { n: 2 }, { debounce });
      expect(second.runId).not.toBe(first.runId);
    });

    test("is one run of many concurrent ones", async () => {
      const rt = shared();
      const debounce = { key: newId(), for: "1h" as const };
      const starts = await Promise.all(
        Array.from({ length: 8 }, (_, i) => rt.start(save, { text: `${i}` }, { debounce })),
      );
      expect(new Set(starts.map(({ runId }) => runId)).size).toBe(1);
    });
  });

  test("a keyed start refuses an id, two keys, and a bad key", async () => {
    const rt = shared();
    const start = (options: object) => rt.start(save, { text: "" }, options);
    const debounce = { key: "k", for: 1 };
    await expect(start({ id: "a", singleton: "k" })).rejects.toThrow("leave out `id`");
    await expect(start({ singleton: "k", debounce })).rejects.toThrow("not both");
    await expect(start({ singleton: "" })).rejects.toThrow("singleton must not be empty");
    await expect(start({ debounce: { key: "k", for: "5 parsecs" } })).rejects.toThrow(
      "debounce.for",
    );
  });
}
