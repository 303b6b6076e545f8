import { describe } from "vitest";
import { describeInventory } from "../conformance/inventory.ts";
import { describeInventoryWithin } from "../conformance/inventory-within.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { sqlStockWithin } from "../support/stock-within.ts";
import { objectsUnderTest } from "../support/workerd-under-test.ts";

// The statements are SQLite's, which the default run tests.
describe.runIf(EVERY_VERSION)("in a Durable Object", () => {
  const objects = objectsUnderTest();

  describeInventory("durable-objects", objects.inventory);
  describeInventoryWithin("durable-objects", () => sqlStockWithin(objects.journal));
});
