import { inject } from "vitest";
import { describeInventory } from "../conformance/inventory.ts";
import { mysqlInventory } from "../support/inventory-under-test.ts";

for (const server of inject("sqlServers")) {
  describeInventory(server.name, () => mysqlInventory(server));
}
