import { inject } from "vitest";
import { describeLockStore } from "../conformance/lock-store.ts";
import { etcdUnderTest } from "../support/under-test.ts";

for (const server of inject("etcdServers")) {
  describeLockStore(server.name, () => etcdUnderTest(server));
}
