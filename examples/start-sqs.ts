import { lazy, sqs, stockHandler } from "lockstep/lambda";
import { openMysql } from "lockstep/mysql";

/** Takes messages such as {"orderId":"order-7","sku":"teapot","quantity":1}. A test gives it a shop of its own. */
export const salesOf = (shop: Parameters<typeof stockHandler>[0]) =>
  stockHandler(shop, {
    delay: sqs().delay, // a message of a busy sku comes back after a second, not after the visibility timeout
    onAnswer: async ({ orderId, outcome }) => console.log(orderId, outcome), // tell the customer
  });

export const handler = salesOf(
  lazy(() => openMysql({ host: "127.0.0.1", port: 3306, user: "root", database: "shop" })),
);
