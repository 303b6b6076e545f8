import { describeLockStore } from "../../conformance/lock-store.ts";
import { singleEtcds } from "../../support/etcd-under-test.ts";
import { EVERY_VERSION } from "../../support/matrix.ts";
import { etcdUnderTest } from "../../support/under-test.ts";

for (const server of singleEtcds()) {
  for (const transport of EVERY_VERSION
    ? (["gateway", "etcd3"] as const)
    : (["gateway"] as const)) {
    describeLockStore(`${server.name} over ${transport}`, () => etcdUnderTest(server, transport));
  }
}
