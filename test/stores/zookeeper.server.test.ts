import { inject } from "vitest";
import { describeElections } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { zookeeperUnderTest } from "../support/under-test.ts";

for (const server of inject("zookeeperServers")) {
  describeLockStore(server.name, () => zookeeperUnderTest(server));
  describeElections(server.name, () => zookeeperUnderTest(server));
}
