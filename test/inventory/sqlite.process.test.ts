import { describeInventory } from "../conformance/inventory.ts";
import { describeInventoryWithin } from "../conformance/inventory-within.ts";
import { sqliteInventory } from "../support/inventory-under-test.ts";
import { sqliteJournalUnderTest } from "../support/journal-under-test.ts";

describeInventory("sqlite", sqliteInventory);
describeInventoryWithin("sqlite", sqliteJournalUnderTest);
