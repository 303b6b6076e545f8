import { openEtcd } from "lockstep/etcd";

await using shop = await openEtcd({ endpoints: ["127.0.0.1:2379"] });
await using election = await shop.elections.open("scheduler", { ttl: "10s" });

await election.campaign("host-7"); // resolves when this process leads
election.assertLeads(); // before every effect: throws when the leadership is lost
console.log((await election.leader())?.value); // host-7

await election.resign();
