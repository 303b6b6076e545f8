import { describe, expect, test } from "vitest";
import { openD1 } from "../../core/stores/cloudflare/index.ts";
import { describeElections } from "../conformance/elections.ts";
import { describeInventory } from "../conformance/inventory.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { d1UnderTest } from "../support/workerd-under-test.ts";

const d1 = d1UnderTest();

test("concurrent clients make the tables once, and sell under a lock what there is", async () => {
  const open = () => openD1(d1.workerd().d1);
  const [first, ...others] = await Promise.all([open(), open(), open(), open()]);
  await first.inventory.set({ sku: "teapot", quantity: 5, operationId: "count" });
  const options = { ttl: "4m", wait: "4m" } as const;
  const answers = await Promise.all(
    [...others, first, ...others, first].map(({ locks, inventory }, i) =>
      locks.withLock("sku/teapot", options, ({ fence }) =>
        inventory.decrement({ sku: "teapot", quantity: 1, operationId: `order-${i}`, fence }),
      ),
    ),
  );
  expect(answers.filter((answer) => answer.outcome === "applied")).toHaveLength(5);
  expect(await first.inventory.get("teapot")).toMatchObject({ onHand: 0, sold: 5 });
});

// The statements are those of SQLite and of Durable Objects, which the default run tests.
describe.runIf(EVERY_VERSION)("in D1", () => {
  describeLockStore("d1", d1.locks);
  describeElections("d1", d1.locks);
  describeInventory("d1", d1.inventory);
});
