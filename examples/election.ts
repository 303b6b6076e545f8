import { openSqlite } from "lockstep/sqlite";

await using shop = await openSqlite("shop.db");
await using election = await shop.elections.open("scheduler", { ttl: "10s" });

await election.campaign("host-7"); // resolves when elected
election.assertLeads(); // before every effect outside: throws once the leadership cannot be proven
console.log(election.signal.aborted, election.fence?.resource); // false scheduler

await election.proclaim("host-7, draining"); // tells the others; the fence stays
console.log((await election.leader())?.value); // host-7, draining
console.log(await election.resign()); // released
