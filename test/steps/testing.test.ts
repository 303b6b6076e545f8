import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { memoryJournal } from "../../core/journal/memory.ts";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { withFaults } from "../../core/steps/testing.ts";

const nightly = workflow({ name: "nightly", version: 1, input: z.object({}) }, async (ctx) => {
  await ctx.step("first", async () => {});
  await ctx.sleep("until the hour", "2h");
  return ctx.step("second", async ({ attempt }) => attempt);
});

describe("the helpers for tests", () => {
  test("skip sleeps and pauses", async () => {
    const runtime = createRuntime({ journal: memoryJournal(), skipPauses: true });
    expect(await runtime.drive(nightly, {})).toMatchObject({ status: "completed", output: 1 });
  });

  test("make a step fail as often as one likes", async () => {
    const runtime = createRuntime({ journal: memoryJournal(), skipPauses: true });
    const faulty = withFaults(nightly, {
      second({ attempt }) {
        if (attempt < 3) throw new Error("down");
      },
    });
    expect(await runtime.drive(faulty, {})).toMatchObject({ output: 3 });
  });

  test("make an item of a map fail", async () => {
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
    expect(await runtime.drive(faulty, {})).toMatchObject({ output: ["a1", "b2"] });
  });

  describe("with a virtual clock", () => {
    beforeEach(() => {
      vi.useFakeTimers();
    });
    afterEach(() => {
      vi.useRealTimers();
    });

    test("a workflow that sleeps for hours takes none", async () => {
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
