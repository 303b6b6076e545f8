import { expectTypeOf } from "vitest";
import { z } from "zod";
import type { Fence } from "../../core/lock/fence.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import {
  type RunOutcome,
  type Runtime,
  Schedule,
  type TimedOut,
  type Workflow,
  type WorkflowContext,
  workflow,
} from "../../core/steps/index.ts";
import { runWorker } from "../../functions/worker/index.ts";

const Order = z.object({ id: z.string(), quantity: z.coerce.number() });

/** Checks of types by `npm run check:types`: the code does not run. */
export const checks = {
  async txNeedsALock({ step }: WorkflowContext) {
    // @ts-expect-error no lock
    await step.tx("reserve", {}, async () => 1);
    await step.tx("reserve", { lock: "sku/1" }, async ({ tx, fence }) => {
      expectTypeOf(fence).toEqualTypeOf<Fence>();
      // @ts-expect-error the engine commits
      tx.commit([]);
    });
  },

  scheduleGivesTheInputOfTheWorkflow() {
    const body = async () => {};
    const good = new Schedule("@daily", { input: (slot) => ({ id: slot.toJSON(), quantity: 1 }) });
    const bad = new Schedule("@daily", { input: (slot) => slot });
    workflow({ name: "daily", version: 1, input: Order, schedule: good }, body);
    // @ts-expect-error another input
    workflow({ name: "daily", version: 1, input: Order, schedule: bad }, body);
  },

  async onlyLockedStepsHaveAFence({ step }: WorkflowContext) {
    // @ts-expect-error no fence
    await step("plain", async (scope) => scope.fence);
    // @ts-expect-error no fence
    await step("plain", { timeout: "8s" }, async (scope) => scope.fence);
    // @ts-expect-error no transaction
    await step("locked", { lock: "sku/1" }, async (scope) => scope.tx);
    // @ts-expect-error no fence
    await step.map("items", [1], { keyOf: String }, async (_, scope) => scope.fence);
    await step("locked", { lock: ["a", "b"] }, async ({ fence, fences }) => {
      expectTypeOf(fence).toEqualTypeOf<Fence>();
      expectTypeOf(fences.get("a")).toEqualTypeOf<Fence | undefined>();
    });
    const lock = (item: number) => `sku/${item}`;
    await step.map("items", [1], { keyOf: String, lock }, async (_, { fence }) => {
      expectTypeOf(fence).toEqualTypeOf<Fence>();
    });
  },

  async undoKnowsTheResult({ step }: WorkflowContext) {
    const paid = await step(
      "charge",
      { timeout: "8s", retry: { attempts: 3 } },
      async () => ({ payment: "p1" }),
      async (result, scope) => {
        expectTypeOf(result).toEqualTypeOf<{ payment: string } | undefined>();
        expectTypeOf(scope.outcome).toEqualTypeOf<"done" | "unknown">();
        // @ts-expect-error no fence
        void scope.fence;
      },
    );
    expectTypeOf(paid).toEqualTypeOf<{ payment: string }>();
    await step(
      "once",
      { semantics: "at-most-once" },
      async () => 1,
      async (result) => expectTypeOf(result).toEqualTypeOf<number | undefined>(),
    );
    await step.tx(
      "reserve",
      { lock: "sku/1" },
      async () => 5n,
      async (result, { tx, fence }) => {
        expectTypeOf(result).toEqualTypeOf<bigint>();
        expectTypeOf(fence).toEqualTypeOf<Fence>();
        await tx.batch([]);
      },
    );
  },

  /** With `exactOptionalPropertyTypes`, a caller passes an optional argument of its own on. */
  async optionsMayBeUndefined(locks: LockStore, runtime: Runtime, ending?: AbortSignal) {
    const place = workflow({ name: "place", version: 1, input: Order }, async () => {});
    await locks.lock("a", { ttl: "10s", wait: 0, signal: ending, deadline: undefined });
    await runtime.execute(place, { id: "1", quantity: 1 }, { signal: ending, deadline: undefined });
    await runWorker({ runtime, signal: ending });
  },

  async mapKnowsWhatItAnswers({ step }: WorkflowContext) {
    const doubled = await step.map("items", [1, 2], { keyOf: String }, async (i) => `${i}`);
    expectTypeOf(doubled).toEqualTypeOf<readonly string[]>();
    const options = { keyOf: String, onError: "collect" } as const;
    const settled = await step.map("items", [1, 2], options, async (i) => `${i}`);
    expectTypeOf(settled).toEqualTypeOf<readonly PromiseSettledResult<string>[]>();
  },

  async schemasGiveTheTypes(ctx: WorkflowContext, runtime: Runtime) {
    const place = workflow({ name: "place", version: 1, input: Order }, async (_, order) => {
      expectTypeOf(order).toEqualTypeOf<{ id: string; quantity: number }>();
      return order.id;
    });
    expectTypeOf(place).toExtend<Workflow<{ id: string; quantity: unknown }, string>>();
    // @ts-expect-error the input is another one
    await runtime.execute(place, { id: 5 });
    const outcome = await runtime.execute(place, { id: "1", quantity: "2" });
    expectTypeOf(outcome).toEqualTypeOf<RunOutcome<string>>();
    const paid = await ctx.waitFor("paid", z.boolean(), { timeout: "15m" });
    expectTypeOf(paid).toEqualTypeOf<boolean | TimedOut>();
    expectTypeOf(await ctx.waitFor("paid", z.boolean())).toEqualTypeOf<boolean>();
    // @ts-expect-error no schema
    await ctx.waitFor("paid");
    const signals = { approved: z.object({ by: z.string() }) };
    workflow({ name: "signals", version: 1, input: Order, signals }, async (typed) => {
      expectTypeOf(await typed.waitFor("approved")).toEqualTypeOf<{ by: string }>();
      const inTime = await typed.waitFor("approved", { timeout: "1h" });
      expectTypeOf(inTime).toEqualTypeOf<{ by: string } | TimedOut>();
      // @ts-expect-error not declared
      await typed.waitFor("aproved");
      await checks.schemasGiveTheTypes(typed, runtime);
    });
    expectTypeOf(await ctx.child("one", place, { id: "1", quantity: 2 })).toEqualTypeOf<string>();
  },
};
