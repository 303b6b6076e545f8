import { describeLockStore } from "../conformance/lock-store.ts";
import { redisUnderTest } from "../support/under-test.ts";

describeLockStore("redis", redisUnderTest);
