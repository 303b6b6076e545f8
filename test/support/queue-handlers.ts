import type { SQSEvent, SQSRecord } from "aws-lambda";
import { z } from "zod";
import type { LockStore } from "../../core/lock/lock.ts";
import { createRuntime, type WorkflowContext, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { type PoisonMessage, type QueueEvent, queueHandler } from "../../functions/lambda/index.ts";
import type { QueueHandlerOptions } from "../../functions/lambda/queue/queue-handler.ts";
import { Queue } from "./lambda-host/queue.ts";

export const Order = z.object({ orderId: z.string(), amount: z.number().default(1) });
export type Order = z.infer<typeof Order>;

/** A Lambda context with `millis` left. */
export function within(millis = 60_000) {
  const endsAt = Date.now() + millis;
  return { getRemainingTimeInMillis: () => Math.max(0, endsAt - Date.now()) };
}

/** An event with these bodies, as a queue delivers it. */
export function eventOf(
  bodies: readonly unknown[],
  { fifo = false, groups = ["a"], receives = 1 } = {},
): SQSEvent {
  const queue = new Queue({ name: fifo ? "orders.fifo" : "orders", visibility: 0 });
  for (const [i, body] of bodies.entries()) {
    queue.send(body, fifo ? { group: groups[i % groups.length] } : {});
  }
  for (let i = 1; i < receives; i += 1) queue.receive(bodies.length);
  return { Records: [...queue.receive(bodies.length)] };
}

/** The positions of the messages that are delivered again. */
export async function failed(
  event: SQSEvent,
  answer: Promise<{ batchItemFailures: { itemIdentifier: string }[] }>,
) {
  const ids = new Set((await answer).batchItemFailures.map(({ itemIdentifier }) => itemIdentifier));
  return event.Records.flatMap(({ messageId }, i) => (ids.has(messageId) ? [i] : []));
}

/** Records the calls of a handler's hooks. */
export function recordHooks() {
  const delays: { orders: readonly string[]; seconds: number }[] = [];
  const poison: PoisonMessage[] = [];
  const events: QueueEvent[] = [];
  const orderOf = ({ body }: SQSRecord) => body.match(/"orderId":"(.*?)"/)?.[1] ?? body;
  return {
    delays,
    poison,
    events,
    codes: () => poison.map(({ error }) => (error as { code?: string }).code),
    options: {
      delay: async (records: readonly SQSRecord[], seconds: number) => {
        delays.push({ orders: records.map(orderOf), seconds });
      },
      poison: { to: async (one: PoisonMessage) => void poison.push(one) },
      onEvent: (event: QueueEvent) => void events.push(event),
    },
  };
}

let count = 0;

/** A handler for a queue of orders whose workflow is `body`. */
export function orderQueue(
  body: (ctx: WorkflowContext, order: Order) => Promise<unknown>,
  options: QueueHandlerOptions<z.input<typeof Order>> = {},
  more: { locks?: LockStore; id?: boolean } = {},
) {
  const journal = memoryJournal();
  const runtime = createRuntime({ journal, locks: more.locks, inlineWait: 10, lease: 10_000 });
  count += 1;
  const definition = { name: `orders-${count}`, version: 1, input: Order };
  const named = more.id === false ? {} : { id: ({ orderId }: Order) => orderId };
  const recorded = recordHooks();
  const handler = queueHandler(runtime, workflow({ ...definition, ...named }, body), {
    ...recorded.options,
    ...options,
  });
  return { ...recorded, journal, runtime, handler };
}

export const orders = (...ids: readonly string[]) => ids.map((orderId) => ({ orderId }));
