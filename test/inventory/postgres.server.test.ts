import { inject } from "vitest";
import { describeInventory } from "../conformance/inventory.ts";
import { describeInventoryWithin } from "../conformance/inventory-within.ts";
import { sqlServerInventory } from "../support/inventory-under-test.ts";
import { sqlServerJournal } from "../support/journal-under-test.ts";
import { sqlStockWithin } from "../support/stock-within.ts";

for (const server of inject("postgresServers")) {
  describeInventory(server.name, () => sqlServerInventory(server));
  describeInventoryWithin(server.name, () => sqlStockWithin(() => sqlServerJournal(server)));
}
