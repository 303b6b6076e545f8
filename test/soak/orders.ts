import { z } from "zod";
import { sql } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { TerminalError } from "../../core/steps/errors.ts";
import { workflow } from "../../core/steps/workflow.ts";
import type { Services } from "../../functions/worker/program.ts";

const Order = z.object({
  orderId: z.string(),
  sku: z.string(),
  quantity: z.number(),
  declined: z.boolean(),
});

export type SoakOrder = z.infer<typeof Order>;

/** So that the lock of a killed process is soon out of the way. */
const TTL = "3s";

/** The workflow that is soaked: reserve, charge, a pause without a process, and a note that is made once. */
export default function placeOrder({ inventory, database }: Services) {
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
      await ctx.step("charge", async ({ idempotencyKey, signal }) => {
        const charge = sql`
          INSERT INTO soak_charge (id, calls) VALUES (${idempotencyKey}, 1)
          ${CALLED_AGAIN}`;
        await database.packet([charge], signal);
        if (declined) throw new TerminalError("DECLINED");
      });
      await ctx.sleep("settle", 1_200);
      await ctx.step.tx(
        "record",
        { lock: { names: `order/${orderId}`, ttl: TTL } },
        async ({ tx }) => {
          // Neither would stand a repetition: the key is unique, and the sum would be wrong.
          await tx.packet([
            sql`INSERT INTO soak_done (id) VALUES (${orderId})`,
            sql`UPDATE soak_total SET orders = orders + 1, units = units + ${quantity}`,
          ]);
        },
      );
      return { orderId };
    },
  );
}

const CALLED_AGAIN = sql`ON DUPLICATE KEY UPDATE calls = calls + 1`;

export const SOAK_TABLES = [
  sql`CREATE TABLE soak_charge (id VARBINARY(255) NOT NULL PRIMARY KEY, calls INT NOT NULL)`,
  sql`CREATE TABLE soak_done (id VARBINARY(255) NOT NULL PRIMARY KEY)`,
  sql`CREATE TABLE soak_total (orders INT NOT NULL, units INT NOT NULL)`,
  sql`INSERT INTO soak_total (orders, units) VALUES (0, 0)`,
];
