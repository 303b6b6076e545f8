import { describeInventory } from "../conformance/inventory.ts";
import { describeInventoryWithin } from "../conformance/inventory-within.ts";
import { dynamodbInventoryUnderTest } from "../support/inventory-under-test.ts";
import { dynamodbStockWithin } from "../support/stock-within.ts";

describeInventory("dynamodb", dynamodbInventoryUnderTest);
describeInventoryWithin("dynamodb", dynamodbStockWithin);
