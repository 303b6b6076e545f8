import { Etcd3 } from "etcd3";
import { openEtcd } from "lockstep/etcd";

const client = new Etcd3({ hosts: "127.0.0.1:2379" });
const shop = await openEtcd(client);
const options = { ttl: "10s", wait: "5s" } as const;
await shop.locks.withLock("nightly-report", options, async ({ signal }) => {
  signal.throwIfAborted();
  console.log("report"); // report
});
await shop.close();
client.close();
