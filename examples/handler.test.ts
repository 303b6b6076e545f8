import { openSqlite } from "lockstep/sqlite";
import { expect, test } from "vitest";
import { salesOf } from "./start-sqs.ts";

test("a message that comes twice sells once, and only a broken one comes back", async () => {
  await using shop = await openSqlite(":memory:");
  await shop.inventory.set({ sku: "teapot", quantity: 5, operationId: "count-1" });
  const handler = salesOf(shop);

  const order = JSON.stringify({ orderId: "order-7", sku: "teapot", quantity: 1 });
  const bodies = { first: order, second: order, broken: "{}" };
  const Records = Object.entries(bodies).map(([messageId, body]) => {
    return { messageId, body, attributes: {}, eventSourceARN: "arn:aws:sqs:eu-west-1:1:orders" };
  });
  // `as never`: `SQSEvent` has more members, which nothing here needs.
  const answer = await handler({ Records } as never, { getRemainingTimeInMillis: () => 10_000 });

  expect(answer).toEqual({ batchItemFailures: [{ itemIdentifier: "broken" }] });
  expect(await shop.inventory.get("teapot")).toMatchObject({ onHand: 4, sold: 1 });
});
