import { describe } from "vitest";
import { describeBatches, describeLedger, describeReservations } from "./inventory-books.ts";
import { describeAborts, describeDecrements } from "./inventory-changes.ts";
import { describeFaults } from "./inventory-faults.ts";
import { describeFences } from "./inventory-fences.ts";
import { InventorySuite, type InventoryUnderTest } from "./inventory-suite.ts";

/** Every property that stock must have, on one database. */
export function describeInventory(name: string, make: () => Promise<InventoryUnderTest>): void {
  describe(`stock on ${name}`, () => {
    const suite = new InventorySuite(make);
    describeDecrements(suite);
    describeAborts(suite);
    describeFences(suite);
    describeBatches(suite);
    describeReservations(suite);
    describeLedger(suite);
    describeFaults(suite);
  });
}
