import { z } from "zod";
import { sql } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { entity } from "../../core/steps/entity/entity.ts";
import { TerminalError } from "../../core/steps/errors.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import type { WorkflowServices } from "../../functions/worker/workflow-module.ts";

const Order = z.object({
  orderId: z.string(),
  sku: z.string(),
  quantity: z.number(),
  declined: z.boolean(),
});

export type SoakOrder = z.infer<typeof Order>;

/** Short, so that the lock of a killed process expires soon. */
const TTL = "3s";

const Entry = z.object({ orderId: z.string(), units: z.number() });

/** The units of the orders of one article, by order. An order that was taken back stays so. */
export const soakLedger = entity(
  { name: "soak-ledger", state: z.record(z.string(), z.number()), initial: {} },
  (on) => ({
    add: on(Entry, async ({ state }, { orderId, units }) => ({
      state: { [orderId]: units, ...state },
    })),
    takeBack: on(Entry, async ({ state }, { orderId }) => ({ state: { ...state, [orderId]: 0 } })),
  }),
);

/** The workflows of the soak test. */
export default function soakWorkflows(services: WorkflowServices) {
  const placeOrder = orderWorkflow(services);
  return { placeOrder, placeBasket: basketWorkflow(placeOrder) };
}

/** Places each order of a basket as a child, and returns how many were completed. */
function basketWorkflow(placeOrder: ReturnType<typeof orderWorkflow>) {
  const input = z.object({ basketId: z.string(), orders: z.array(Order) });
  return workflow(
    { name: "soak-basket", version: 1, input, id: ({ basketId }) => basketId },
    async (ctx, { orders }) => {
      const keyOf = ({ orderId }: SoakOrder) => orderId;
      const options = { keyOf, concurrency: 2, onError: "collect" } as const;
      const results = await ctx.children("orders", placeOrder, orders, options);
      return results.filter(({ status }) => status === "fulfilled").length;
    },
  );
}

/** Reserves, charges, tells an entity, sleeps, and writes a record that must be written exactly once. */
function orderWorkflow({ inventory, database }: WorkflowServices) {
  const entities = createRuntime({ journal: sqlJournal(database), lease: TTL });
  return workflow(
    { name: "soak", version: 1, input: Order, id: ({ orderId }) => orderId },
    async (ctx, { orderId, sku, quantity, declined }) => {
      const lock = { names: stockLock(sku), ttl: TTL } as const;
      await ctx.step.tx(
        "reserve",
        { lock },
        async ({ tx, fence, idempotencyKey: operationId }) => {
          const change = { sku, quantity, operationId, fence };
          const { outcome } = await inventory.within(tx).decrement(change);
          if (outcome !== "applied") throw new TerminalError("SOLD_OUT");
        },
        async (_, { tx, fence, idempotencyKey: operationId }) => {
          await inventory.within(tx).restock({ sku, quantity, operationId, fence });
        },
      );
      await ctx.step(
        "charge",
        async ({ idempotencyKey, signal }) => {
          const charge = sql`
            INSERT INTO soak_charge (id, calls, refunded) VALUES (${idempotencyKey}, 1, 0)
            ON DUPLICATE KEY UPDATE calls = calls + 1`;
          await database.batch([charge], signal);
          // The call was recorded, and no money has moved.
          if (declined) throw new TerminalError("DECLINED", "declined", { effect: "none" });
        },
        async (_, { stepIdempotencyKey }) => {
          // Also refunds a charge that arrives later.
          const refund = sql`
            INSERT INTO soak_charge (id, calls, refunded) VALUES (${stepIdempotencyKey}, 0, 1)
            ON DUPLICATE KEY UPDATE refunded = 1`;
          await database.batch([refund]);
        },
      );
      const ledger = entities.entity(soakLedger, sku);
      const entry = { orderId, units: quantity };
      await ctx.step(
        "book",
        async ({ idempotencyKey: operationId, signal }) =>
          ledger.call("add", entry, { operationId, signal }),
        async (_, { idempotencyKey: operationId }) =>
          ledger.call("takeBack", entry, { operationId }),
      );
      await ctx.sleep("settle", 1_200);
      await ctx.step.tx(
        "record",
        { lock: { names: `order/${orderId}`, ttl: TTL } },
        async ({ tx }) => {
          // A repetition is detected: the key is unique, and the sum would be wrong.
          await tx.batch([
            sql`INSERT INTO soak_done (id) VALUES (${orderId})`,
            sql`UPDATE soak_total SET orders = orders + 1, units = units + ${quantity}`,
          ]);
        },
        async (_, { tx }) => {
          await tx.batch([
            sql`DELETE FROM soak_done WHERE id = ${orderId}`,
            sql`UPDATE soak_total SET orders = orders - 1, units = units - ${quantity}`,
          ]);
        },
      );
      return { orderId };
    },
  );
}

export const SOAK_TABLES = [
  sql`
    CREATE TABLE soak_charge (
      id VARBINARY(255) NOT NULL PRIMARY KEY, calls INT NOT NULL, refunded INT NOT NULL)`,
  sql`CREATE TABLE soak_done (id VARBINARY(255) NOT NULL PRIMARY KEY)`,
  sql`CREATE TABLE soak_total (orders INT NOT NULL, units INT NOT NULL)`,
  sql`INSERT INTO soak_total (orders, units) VALUES (0, 0)`,
];
