import { describeLockStore } from "../conformance/lock-store.ts";
import { memoryUnderTest } from "../support/under-test.ts";

describeLockStore("memory", memoryUnderTest);
