import { openEtcd } from "lockstep/etcd";
import { stockLock } from "lockstep/inventory";
import { openMysql } from "lockstep/mysql";

await using etcd = await openEtcd({ endpoints: ["127.0.0.1:2379"] });
await using shop = await openMysql({
  host: "127.0.0.1",
  port: 3306,
  user: "root",
  database: "shop",
});
await shop.inventory.set({ sku: "ticket", quantity: 10, operationId: "count-ticket" });

const sale = { sku: "ticket", quantity: 1, operationId: "order-of-ticket-7" };
const options = { ttl: "10s", wait: "5s" } as const;
const answer = await etcd.locks.withLock(stockLock("ticket"), options, ({ fence }) =>
  shop.inventory.decrement({ ...sale, fence }),
);
console.log(answer.outcome, answer.remaining); // applied 9
