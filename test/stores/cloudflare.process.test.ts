import { describeElections, describeLostProclamations } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { objectsUnderTest } from "../support/workerd-under-test.ts";

const objects = objectsUnderTest();

describeLockStore("durable-objects", objects.locks);
describeElections("durable-objects", objects.locks);
describeLostProclamations("durable-objects", objects.locks);
