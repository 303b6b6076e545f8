import { describeLockStore } from "../conformance/lock-store.ts";
import { etcdUnderTest } from "../support/under-test.ts";

describeLockStore("etcd", () =>
  etcdUnderTest({ name: "etcd", version: "", endpoints: ["127.0.0.1:23790"], etcdctl: "etcdctl" }),
);
