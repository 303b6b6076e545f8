import { openMemory } from "lockstep/memory";
import { TerminalError, workflow } from "lockstep/steps";
import { createTestRuntime, injectFaults, withFaults } from "lockstep/testing";
import { beforeEach, expect, test, vi } from "vitest";
import { z } from "zod";

const effects: string[] = []; // in place of your providers
const placeOrder = workflow(
  { name: "place-order", version: 1, input: z.string(), id: (order) => order },
  async (ctx) => {
    await ctx.step(
      "charge",
      async () => effects.push("charged"),
      async () => effects.push("refunded"),
    );
    await ctx.step("ship", async () => effects.push("shipped"));
  },
);

beforeEach(() => void effects.splice(0));

test("when the process dies before it ships, another one ships, and charges nothing", async () => {
  const { journal } = await openMemory();
  const { promise: never } = Promise.withResolvers<never>();
  let isDead = false;
  const dies = () => {
    isDead = true;
    return never;
  };
  // No call of a dead process reaches the journal, the renewal of its lease neither.
  const cutOff = injectFaults(journal, () => (isDead ? never : undefined));
  const first = createTestRuntime({ journal: cutOff, lease: "200ms" });
  void first.run(withFaults(placeOrder, { ship: dies }), "order-7");
  await vi.waitUntil(() => isDead);

  const second = createTestRuntime({ journal });
  expect(await second.run(placeOrder, "order-7")).toMatchObject({ status: "completed" });
  expect(effects).toEqual(["charged", "shipped"]);
});

test("an order that cannot be shipped is refunded", async () => {
  const { journal } = await openMemory();
  const refused = () => {
    throw new TerminalError("NO_SUCH_ADDRESS", "nobody lives there", { effect: "none" });
  };
  const order = withFaults(placeOrder, { ship: refused });
  const outcome = await createTestRuntime({ journal }).run(order, "order-8");
  expect(outcome).toMatchObject({ status: "failed", compensated: "yes" });
  expect(effects).toEqual(["charged", "refunded"]);
});
