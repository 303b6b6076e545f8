import { describeLockStore } from "../conformance/lock-store.ts";
import { objectsUnderTest } from "../support/workerd-under-test.ts";

const objects = objectsUnderTest();

describeLockStore("durable-objects", objects.locks);
