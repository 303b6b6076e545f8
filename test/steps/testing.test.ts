import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { createTestRuntime, withFaults } from "../../core/steps/testing.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";

const nightly = workflow({ name: "nightly", version: 1, input: z.object({}) }, async (ctx) => {
  await ctx.step("first", async () => {});
  await ctx.sleep("until the hour", "2h");
  return ctx.step("second", async ({ attempt }) => attempt);
});

describe("helpers for tests", () => {
  test("skipPauses skips sleeps and pauses", async () => {
    const runtime = createRuntime({ journal: memoryJournal(), skipPauses: true });
    expect(await runtime.execute(nightly, {})).toMatchObject({ status: "completed", output: 1 });
  });

  test("withFaults fails attempts of a step", async () => {
    const runtime = createRuntime({ journal: memoryJournal(), skipPauses: true });
    const faulty = withFaults(nightly, {
      second({ attempt }) {
        if (attempt < 3) throw new Error("down");
      },
    });
    expect(await runtime.execute(faulty, {})).toMatchObject({ output: 3 });
  });

  test("withFaults fails an item of a map", async () => {
    const runtime = createRuntime({ journal: memoryJournal(), skipPauses: true });
    const many = workflow({ name: "many", version: 1, input: z.object({}) }, async (ctx) =>
      ctx.step.map("items", ["a", "b"], { keyOf: String }, async (item, { attempt }) => {
        return `${item}${attempt}`;
      }),
    );
    const faulty = withFaults(many, {
      items({ key, attempt }) {
        if (key === "items[b]" && attempt === 1) throw new Error("down");
      },
    });
    expect(await runtime.execute(faulty, {})).toMatchObject({ output: ["a1", "b2"] });
  });

  test("a test runtime starts a run with a key, and sends it its signals", async () => {
    const input = z.object({});
    const asked = workflow({ name: "asked", version: 1, input }, (ctx) =>
      ctx.waitFor("answer", z.string()),
    );
    const runtime = createTestRuntime({
      ...{ journal: memoryJournal(), workflows: [asked] },
      fake: { signals: { answer: ["yes"] } },
    });
    const { runId } = await runtime.start(asked, {}, { singleton: "tenant 7" });
    expect(await runtime.resume(runId)).toMatchObject({ status: "completed", output: "yes" });
    const debounce = { key: "tenant 7", for: "1ms" } as const;
    expect(await runtime.start(asked, {}, { debounce })).toMatchObject({ status: "suspended" });
  });

  describe("with a virtual clock", () => {
    beforeEach(() => {
      vi.useFakeTimers();
    });
    afterEach(() => {
      vi.useRealTimers();
    });

    test("a workflow that sleeps for hours ends at once", async () => {
      const runtime = createRuntime({ journal: memoryJournal() });
      let ended = false;
      const running = runtime.run(nightly, {}).finally(() => {
        ended = true;
      });
      await vi.advanceTimersByTimeAsync(7_100_000);
      expect(ended).toBe(false);
      await vi.advanceTimersByTimeAsync(200_000);
      expect(await running).toMatchObject({ status: "completed", output: 1 });
    });
  });
});
