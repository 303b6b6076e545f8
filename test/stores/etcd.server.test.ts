import { inject } from "vitest";
import { describeElections } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import type { EtcdServer } from "../support/etcd-servers.ts";
import { GrpcProxy } from "../support/grpc-proxy.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { etcdUnderTest } from "../support/under-test.ts";

for (const server of inject("etcdServers")) {
  describeLockStore(server.name, () => etcdUnderTest(server));
  describeElections(server.name, () => etcdUnderTest(server));
  // As many tests again, and slower ones: the proxy answers renewals twice per second.
  if (!EVERY_VERSION) continue;
  describeLockStore(`${server.name} behind grpc-proxy`, () => behindProxy(server));
  describeElections(`${server.name} behind grpc-proxy`, () => behindProxy(server));
}

async function behindProxy(server: EtcdServer) {
  const proxy = await GrpcProxy.to(server);
  const underTest = await etcdUnderTest(proxy.server);
  return {
    ...underTest,
    async close() {
      await underTest.close();
      await proxy[Symbol.asyncDispose]();
    },
  };
}
