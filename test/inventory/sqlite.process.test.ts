import { describeInventory } from "../conformance/inventory.ts";
import { describeInventoryWithin } from "../conformance/inventory-within.ts";
import { sqliteInventory } from "../support/inventory-under-test.ts";
import { sqliteJournalUnderTest } from "../support/journal-under-test.ts";
import { sqlStockWithin } from "../support/stock-within.ts";

describeInventory("sqlite", sqliteInventory);
describeInventoryWithin("sqlite", () => sqlStockWithin(sqliteJournalUnderTest));
