import { describeInventory } from "../conformance/inventory.ts";
import { sqliteInventory } from "../support/inventory-under-test.ts";

describeInventory("sqlite", sqliteInventory);
