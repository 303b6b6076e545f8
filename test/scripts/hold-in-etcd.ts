import { EtcdMutex, EtcdSession, openEtcd } from "../../core/stores/etcd/index.ts";

/** hold-in-etcd KIND ENDPOINT NAME: takes a lock, a mutex or a leadership, prints "holds", and ends without a release. */
const [kind = "", endpoint = "", name = ""] = process.argv.slice(2);
const { etcd, locks, elections } = await openEtcd({ endpoints: [endpoint] });

const takes: Record<string, () => Promise<unknown>> = {
  lock: () => locks.lock(name, { ttl: "6s", wait: "10s" }),
  mutex: async () => new EtcdMutex(etcd, await EtcdSession.open(etcd, { ttl: "6s" }), name).lock(),
  leadership: async () => (await elections.open(name, { ttl: "6s" })).campaign("holds"),
};
await takes[kind]?.();
// Its watches and keepalives are under way by then.
await new Promise((resolve) => setTimeout(resolve, 3_000));
process.stdout.write("holds\n");
