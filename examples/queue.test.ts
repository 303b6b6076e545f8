import { queueHandler } from "lockstep/lambda";
import { openMemory } from "lockstep/memory";
import { createRuntime, workflow } from "lockstep/steps";
import { expect, test } from "vitest";
import { z } from "zod";

test("a message that comes twice is one run, and only a broken one comes back", async () => {
  const { journal } = await openMemory();
  const charges: string[] = []; // in place of your provider
  const pay = workflow(
    { name: "pay", version: 1, input: z.object({ order: z.string() }), id: ({ order }) => order },
    async (ctx) => {
      await ctx.step("charge", async ({ idempotencyKey }) => charges.push(idempotencyKey));
    },
  );
  const handler = queueHandler(createRuntime({ journal, workflows: [pay] }), pay);

  const deliver = (bodies: Record<string, object>) => {
    const Records = Object.entries(bodies).map(([messageId, body]) => {
      const eventSourceARN = "arn:aws:sqs:eu-west-1:1:orders";
      return { messageId, body: JSON.stringify(body), attributes: {}, eventSourceARN };
    });
    // `as never`: `SQSEvent` has more members, which nothing here needs.
    return handler({ Records } as never, { getRemainingTimeInMillis: () => 10_000 });
  };
  const broken = { itemIdentifier: "broken" };
  const first = await deliver({ first: { order: "order-7" }, broken: {} });
  expect(first).toEqual({ batchItemFailures: [broken] });
  const second = await deliver({ second: { order: "order-7" }, broken: {} });
  expect(second).toEqual({ batchItemFailures: [broken] });
  expect(charges).toHaveLength(1);
});
