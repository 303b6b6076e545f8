import { openRedis } from "lockstep/redis";

await using shop = await openRedis({ host: "127.0.0.1", port: 6379 });
const lock = await shop.locks.tryLock("nightly-report", { ttl: "10s" });
if (lock) {
  console.log("report"); // report
  console.log(await lock.unlock()); // released
}
