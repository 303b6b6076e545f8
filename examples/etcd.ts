import { EtcdMutex, EtcdSession, etcdElection, openEtcd } from "lockstep/etcd";

await using shop = await openEtcd({ endpoints: ["127.0.0.1:2379"] });
const { etcd } = shop;
const session = await EtcdSession.open(etcd, { ttl: "10s" }); // session.signal aborts when the session is lost

const mutex = new EtcdMutex(etcd, session, "jobs/report"); // as `etcdctl lock jobs/report`
await mutex.lock();
const { succeeded } = await etcd.txn({
  when: [mutex.isOwner()], // in the same transaction: nobody has taken over
  do: [{ op: "put", key: "jobs/report-state", value: "done" }],
});
await mutex.unlock();

const election = etcdElection(etcd, session, "leader");
await election.campaign("host-7"); // resolves when elected
console.log(succeeded, (await election.leader())?.value); // true host-7
await election.resign();
await session.close();
