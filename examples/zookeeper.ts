import { openZooKeeper, zookeeperElection } from "lockstep/zookeeper";

await using shop = await openZooKeeper({ servers: ["127.0.0.1:2181"] }, { root: "/shop" });
const lock = await shop.locks.lock("report", { ttl: "10s", wait: "5s" }); // as Curator's on /shop/report
await lock.unlock();

const session = await shop.zookeeper.openSession(10_000); // its signal aborts when the session is lost
const election = zookeeperElection(session, "/shop/leader");
await election.campaign("host-7"); // resolves when elected
console.log((await election.leader())?.value); // host-7
await election.resign();
