import { describe, expect, test } from "vitest";
import { TerminalError } from "../../core/steps/index.ts";
import type { QueueHandlerOptions } from "../../functions/lambda/queue/queue-handler.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { orderQueue, within } from "../support/queue-handlers.ts";
import { until } from "../support/until.ts";

interface Deliveries {
  readonly fifo?: boolean;

  /** Without `delay`, a message stays invisible for the queue's timeout. */
  readonly canDelay?: boolean;
  readonly poison?: QueueHandlerOptions<{ orderId: string }>["poison"];
}

/** Delivers orders to a handler without a poison queue, until the queue is empty. Orders that begin with "bad" fail. */
async function deliver(
  ids: readonly string[],
  { fifo = false, canDelay = true, poison }: Deliveries,
) {
  const name = fifo ? "orders.fifo" : "orders";
  const dead = new Queue({ name: `dead-${name}`, visibility: 1 });
  // A message stays invisible for longer than a delivery takes on a busy machine, and a second is short.
  const queue = new Queue({ name, visibility: 20, second: 100, redrive: { to: dead, after: 4 } });
  for (const orderId of ids) queue.send({ orderId }, fifo ? { group: "a" } : {});
  const done: string[] = [];
  const deliveries = new Map<string, number>();
  const { handler } = orderQueue(
    async (ctx, { orderId }) => {
      await ctx.step("work", async () => void done.push(orderId));
      if (orderId.startsWith("bad")) throw new TerminalError(orderId.toUpperCase());
    },
    {
      concurrency: 1,
      poison,
      delay: canDelay
        ? async (records, seconds) => {
            for (const one of records) queue.changeVisibility(one.receiptHandle, seconds);
          }
        : undefined,
    } as QueueHandlerOptions<{ orderId: string }>,
  );
  await until(async () => {
    const Records = [...queue.receive(10)];
    for (const { body } of Records) {
      const { orderId } = JSON.parse(body);
      deliveries.set(orderId, (deliveries.get(orderId) ?? 0) + 1);
    }
    const { batchItemFailures } = await handler({ Records }, within());
    const failed = new Set(batchItemFailures.map(({ itemIdentifier }) => itemIdentifier));
    for (const one of Records) if (!failed.has(one.messageId)) queue.delete(one.receiptHandle);
    return queue.messages.length === 0;
  });
  const lettersIn = dead.messages.map(({ body }) => JSON.parse(body).orderId);
  return { done, deliveries: Object.fromEntries(deliveries), dead: lettersIn };
}

describe.concurrent("without a poison queue", { timeout: 60_000 }, () => {
  test("the message of a failed run reaches the dead-letter queue, and the run was executed once", async () => {
    const { done, dead, deliveries } = await deliver(["1", "bad", "2"], {});
    expect(dead).toEqual(["bad"]);
    expect(done.sort()).toEqual(["1", "2", "bad"]);
    expect(deliveries).toEqual({ 1: 1, bad: 4, 2: 1 });
  });

  test("a failure that isPoison does not select is done", async () => {
    const isPoison = ({ code }: { readonly code?: string | undefined }) => code !== "BAD 1";
    const { dead } = await deliver(["bad 1", "bad 2"], { poison: { isPoison } });
    expect(dead).toEqual(["bad 2"]);
  });

  test.each([true, false])(
    "a bad message of a FIFO queue holds up no message behind it (delay: %s)",
    async (canDelay) => {
      const { done, dead, deliveries } = await deliver(["1", "bad", "2", "3"], {
        fifo: true,
        canDelay,
      });
      expect(dead).toEqual(["bad"]);
      expect(done).toEqual(["1", "bad", "2", "3"]);
      expect(deliveries).toEqual({ 1: 1, bad: 4, 2: 1, 3: 1 });
    },
  );
});
