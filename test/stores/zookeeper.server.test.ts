import { inject } from "vitest";
import { describeLockStore } from "../conformance/lock-store.ts";
import { zookeeperUnderTest } from "../support/under-test.ts";

for (const server of inject("zookeeperServers")) {
  describeLockStore(server.name, () => zookeeperUnderTest(server));
}
