import { expect, test } from "vitest";
import { lockElections } from "../../core/lock/lock-election.ts";
import { keyOf } from "../../core/stores/redis/client/names.ts";
import { redlockLocks } from "../../core/stores/redlock/locks.ts";
import { describeElections, describeLostProclamations } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { anyPrefix, openLocal, redisServer } from "../support/redis-under-test.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { redlockUnderTest } from "../support/under-test.ts";
import { until } from "../support/until.ts";

describeLockStore("redlock", () => redlockUnderTest());
describeElections("redlock", () => redlockUnderTest());
describeLostProclamations("redlock", () => redlockUnderTest());

test("a master that has missed a proclamation gets the value with a later renewal", async () => {
  const [first = 0, ...others] = redisServer("redlock").ports;
  await using stack = new AsyncDisposableStack();
  const proxy = await TcpProxy.to(first);
  stack.defer(() => proxy.close());
  const prefix = anyPrefix();
  const masters = [proxy.port, ...others].map((port) => openLocal({ port }));
  const locks = redlockLocks(masters, { prefix, closeMasters: true });
  stack.defer(() => locks.close());
  const admin = openLocal({ port: first });
  stack.defer(() => admin.close());
  const text = async () => String(await admin.call(["GET", keyOf(prefix, "lock", "a")]));
  const election = await lockElections(locks).open("a", { ttl: 6_000 });
  await election.campaign("before");
  await until(async () => (await text()).includes("before"));
  proxy.blackhole();
  await election.proclaim("after");
  expect(await text()).toContain("before");
  await until(async () => (await text()).includes("after"));
  election.assertLeads();
});
