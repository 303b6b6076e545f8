import { claimFence } from "../database/claim.ts";
import { asBigInt, asNumber, asText, type Database, type Row, sql } from "../database/sql.ts";
import { checkWhole } from "../lock/checks.ts";
import { type Fence, formatFence } from "../lock/fence.ts";
import { apply, readStock } from "./apply.ts";
import { applyMany } from "./batch.ts";
import { checkOrders, checkSku, toOperation } from "./check.ts";
import { expireReservations } from "./expiry.ts";
import type { Entry, Inventory, Kind, Outcome, Stock } from "./inventory.ts";
import { Together } from "./together.ts";

/** Stock in the tables of a MySQL, MariaDB or SQLite database. Who opened the database closes it. */
export function sqlInventory(database: Database): Inventory {
  const place = { database, claimed: new WeakSet<Fence>() };
  const together = new Together(place);
  return {
    get: (sku) => get(database, sku),
    set: async (change) => apply(place, toOperation("set", change), change.signal),
    restock: async (change) => apply(place, toOperation("restock", change), change.signal),
    decrement: async (change) =>
      together.decrement(toOperation("decrement", change), change.signal),
    reserve: async (change) => apply(place, toOperation("reserve", change), change.signal),
    confirm: async (change) => apply(place, toOperation("confirm", change), change.signal),
    cancel: async (change) => apply(place, toOperation("cancel", change), change.signal),

    async decrementMany({ sku, orders, fence, signal }) {
      checkOrders(orders);
      const operations = orders.map((order) =>
        toOperation("decrement", { ...order, sku, fence, signal }),
      );
      return applyMany(database, { sku, fence, operations }, signal);
    },

    async expire(sku) {
      checkSku(sku);
      await expireReservations(database, sku);
    },

    history: (sku, { limit = 100, before = Number.MAX_SAFE_INTEGER } = {}) =>
      history(database, sku, limit, before),

    async claim(fence) {
      await database.transaction(async (tx) => {
        await claimFence(database, tx, fence);
        await tx.commit([]);
      });
    },
  };
}

async function get(database: Database, sku: string): Promise<Stock | undefined> {
  checkSku(sku);
  const [row] = await database.read(readStock(sku));
  if (row === undefined) return undefined;
  return {
    sku,
    onHand: asNumber(row.on_hand),
    reserved: asNumber(row.reserved),
    sold: asNumber(row.sold),
    supplied: asNumber(row.supplied),
  };
}

async function history(
  database: Database,
  sku: string,
  limit: number,
  before: number,
): Promise<readonly Entry[]> {
  checkSku(sku);
  checkWhole("limit", limit, 1, 10_000);
  checkWhole("before", before, 0, Number.MAX_SAFE_INTEGER);
  const rows = await database.read(sql`
    SELECT seq, kind, quantity, outcome, on_hand, operation_id, reservation, generation, token, at
    FROM lockstep_ledger
    WHERE sku = ${sku} AND seq < ${before}
    ORDER BY seq DESC
    LIMIT ${limit}`);
  return rows.map(toEntry);
}

function toEntry(row: Row): Entry {
  const optional = (value: unknown) => (value == null ? undefined : asText(value));
  return {
    seq: asNumber(row.seq),
    kind: asText(row.kind) as Kind,
    quantity: asNumber(row.quantity),
    outcome: asText(row.outcome) as Outcome,
    remaining: asNumber(row.on_hand),
    operationId: optional(row.operation_id),
    reservation: optional(row.reservation),
    fence:
      row.token == null ? undefined : formatFence(asNumber(row.generation), asBigInt(row.token)),
    at: new Date(asNumber(row.at) / 1_000),
  };
}
