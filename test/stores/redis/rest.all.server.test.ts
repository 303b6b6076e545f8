import { describeElections } from "../../conformance/elections.ts";
import { describeInventory } from "../../conformance/inventory.ts";
import { describeLockStore } from "../../conformance/lock-store.ts";
import { redisRestInventoryUnderTest } from "../../support/inventory-under-test.ts";
import { redisRestUnderTest } from "../../support/under-test.ts";

describeLockStore("redis over HTTP", redisRestUnderTest);
describeElections("redis over HTTP", redisRestUnderTest);
describeInventory("redis over HTTP", redisRestInventoryUnderTest);
