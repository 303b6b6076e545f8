import { inject } from "vitest";
import { describeLockStore } from "../conformance/lock-store.ts";
import { mysqlUnderTest } from "../support/under-test.ts";

for (const server of inject("sqlServers")) {
  describeLockStore(server.name, () => mysqlUnderTest(server));
}
