import { describeLockStore } from "../conformance/lock-store.ts";
import { redlockUnderTest } from "../support/under-test.ts";

describeLockStore("redlock", () => redlockUnderTest());
