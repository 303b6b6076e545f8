import { inject } from "vitest";
import { describeInventory } from "../conformance/inventory.ts";
import { describeInventoryWithin } from "../conformance/inventory-within.ts";
import { mysqlInventory } from "../support/inventory-under-test.ts";
import { mysqlJournalUnderTest } from "../support/journal-under-test.ts";

for (const server of inject("sqlServers")) {
  describeInventory(server.name, () => mysqlInventory(server));
  describeInventoryWithin(server.name, () => mysqlJournalUnderTest(server));
}
