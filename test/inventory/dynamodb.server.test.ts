import { describeInventory } from "../conformance/inventory.ts";
import { dynamodbInventoryUnderTest } from "../support/inventory-under-test.ts";

describeInventory("dynamodb", dynamodbInventoryUnderTest);
