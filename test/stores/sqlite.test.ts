import { describeLockStore } from "../conformance/lock-store.ts";
import { sqliteUnderTest } from "../support/under-test.ts";

describeLockStore("sqlite", sqliteUnderTest);
