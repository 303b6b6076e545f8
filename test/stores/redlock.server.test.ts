import { describeElections, describeLostProclamations } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { redlockUnderTest } from "../support/under-test.ts";

describeLockStore("redlock", () => redlockUnderTest());
describeElections("redlock", () => redlockUnderTest());
describeLostProclamations("redlock", () => redlockUnderTest());
