import { inject } from "vitest";
import { describeElections } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { etcdUnderTest } from "../support/under-test.ts";

for (const server of inject("etcdServers")) {
  describeLockStore(server.name, () => etcdUnderTest(server));
  describeElections(server.name, () => etcdUnderTest(server));
}
