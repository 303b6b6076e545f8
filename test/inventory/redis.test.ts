import { describeInventory } from "../conformance/inventory.ts";
import { redisInventoryUnderTest } from "../support/inventory-under-test.ts";

describeInventory("redis", redisInventoryUnderTest);
