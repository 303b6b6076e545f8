import { describeLockStore } from "../../conformance/lock-store.ts";
import { singleEtcds } from "../../support/etcd-under-test.ts";
import { etcdUnderTest } from "../../support/under-test.ts";

for (const server of singleEtcds()) {
  describeLockStore(`${server.name} over the gateway`, () => etcdUnderTest(server, "gateway"));
}
