import { openMysql } from "lockstep/mysql";

await using shop = await openMysql({
  host: "127.0.0.1",
  port: 3306,
  user: "root",
  database: "shop",
});
const options = { ttl: "10s", wait: "5s" } as const;
await shop.locks.withLock("nightly-report", options, async ({ signal }) => {
  signal.throwIfAborted(); // pass the signal on to every call of the report
  console.log("report"); // report
});
