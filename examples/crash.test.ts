import { openMemory } from "lockstep/memory";
import { TerminalError, workflow } from "lockstep/steps";
import { createTestRuntime, injectFaults, withFaults } from "lockstep/testing";
import { beforeEach, expect, test, vi } from "vitest";
import { z } from "zod";

const effects: string[] = []; // in place of your providers
const keys: string[] = [];
const placeOrder = workflow(
  { name: "place-order", version: 1, input: z.string(), id: (order) => order },
  async (ctx) => {
    await ctx.step(
      "charge",
      async ({ idempotencyKey }) => {
        keys.push(idempotencyKey);
        effects.push("charged");
      },
      async () => effects.push("refunded"),
    );
    await ctx.step("ship", async () => effects.push("shipped"));
  },
);

beforeEach(() => {
  effects.length = 0;
  keys.length = 0;
});

/** Executes the order in a process that dies before it ships, or at `isTime`, and then in another one. */
async function dying(isTime = () => false) {
  const { journal } = await openMemory();
  const { promise: never } = Promise.withResolvers<never>();
  let isDead = false;
  const ship = () => {
    isDead = true;
    return never;
  };
  // No call of a dead process reaches the journal, the renewal of its lease neither.
  const cutOff = injectFaults(journal, () => {
    isDead ||= isTime();
    return isDead ? never : undefined;
  });
  const first = createTestRuntime({ journal: cutOff, lease: "200ms" });
  void first.run(withFaults(placeOrder, { ship }), "order-7");
  await vi.waitUntil(() => isDead);
  return createTestRuntime({ journal }).run(placeOrder, "order-7");
}

test("when the process dies before it ships, another one ships, and charges nothing", async () => {
  expect(await dying()).toMatchObject({ status: "completed" });
  expect(effects).toEqual(["charged", "shipped"]);
});

test("when it dies after the charge and before its record, the charge is repeated with its key", async () => {
  expect(await dying(() => effects.length > 0)).toMatchObject({ status: "completed" });
  expect(effects).toEqual(["charged", "charged", "shipped"]);
  expect(keys[1]).toBe(keys[0]);
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
