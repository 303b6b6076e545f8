import { stockLock } from "lockstep/inventory";
import { openMysql } from "lockstep/mysql";
import { openRedis } from "lockstep/redis";

await using redis = await openRedis({ host: "127.0.0.1", port: 6379 });
await using shop = await openMysql({
  host: "127.0.0.1",
  port: 3306,
  user: "root",
  database: "shop",
});
await shop.inventory.set({ sku: "phone", quantity: 100, operationId: "count-phone" });

const sale = { sku: "phone", quantity: 1, operationId: "order-of-phone-7" };
const options = { ttl: "10s", wait: "5s" } as const; // renewed while the body runs
const answer = await redis.locks.withLock(stockLock("phone"), options, ({ fence }) =>
  shop.inventory.decrement({ ...sale, fence }),
); // committed before the lock is released
console.log(answer.outcome, answer.remaining); // applied 99
