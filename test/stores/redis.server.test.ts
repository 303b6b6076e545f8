import { describeElections, describeLostProclamations } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { redisUnderTest } from "../support/under-test.ts";

describeLockStore("redis", redisUnderTest);
describeElections("redis", redisUnderTest);
describeLostProclamations("redis", redisUnderTest);
