import { describeInventory } from "../conformance/inventory.ts";
import { describeInventoryWithin } from "../conformance/inventory-within.ts";
import { objectsUnderTest } from "../support/workerd-under-test.ts";

const objects = objectsUnderTest();

describeInventory("durable-objects", objects.inventory);
describeInventoryWithin("durable-objects", objects.journal);
