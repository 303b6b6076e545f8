import { randomUUID } from "node:crypto";
import { checkClaim, claim, claimAndRead, isClaimed } from "../../core/database/claim.ts";
import {
  asNumber,
  asText,
  type Database,
  DuplicateKeyError,
  type Sql,
  sql,
} from "../../core/database/sql.ts";
import { type Inventory, stockLock } from "../../core/inventory/inventory.ts";
import type { Sale, Shop, ShopTotals, WriteResult } from "./shop.ts";

/** The shop's tables, outside the library's schema: created on demand, emptied when a shop closes. */
const TABLES = [
  sql`
    CREATE TABLE IF NOT EXISTS lockstep_oversell_lock (
      shop VARCHAR(255) NOT NULL PRIMARY KEY, owner VARCHAR(255) NOT NULL, expires_at BIGINT NOT NULL)`,
  sql`
    CREATE TABLE IF NOT EXISTS lockstep_oversell_stock (
      shop VARCHAR(255) NOT NULL PRIMARY KEY, stock BIGINT NOT NULL,
      fence VARCHAR(255) NOT NULL, changed_by VARCHAR(255) NOT NULL)`,
  sql`
    CREATE TABLE IF NOT EXISTS lockstep_oversell_sale (
      sale_id VARCHAR(255) NOT NULL PRIMARY KEY, shop VARCHAR(255) NOT NULL,
      order_id VARCHAR(255) NOT NULL, stock BIGINT NOT NULL)`,
];

/** Opens a shop in a database. Its name is also its sku in the library's inventory. */
export function sqlShop(database: Database, inventory: Inventory, shop: string): Shop {
  const { now } = database.dialect;

  /** The statements that change the stock under a condition and record the sale. */
  const changes = (sale: Sale, { set, where }: { set: Sql; where: Sql }): readonly Sql[] => {
    const mark = randomUUID();
    const change = sql`
      UPDATE lockstep_oversell_stock SET ${set}, changed_by = ${mark}
      WHERE shop = ${shop} AND ${where}`;
    const record = sql`
      INSERT INTO lockstep_oversell_sale (sale_id, shop, order_id, stock)
      SELECT ${`${shop}/${sale.saleId}`}, shop, ${sale.orderId}, stock FROM lockstep_oversell_stock
      WHERE shop = ${shop} AND changed_by = ${mark}`;
    return [change, record];
  };

  /** Changes the stock under a condition and records the sale, in one transaction. */
  const sell = async (
    sale: Sale,
    { before = [], ...change }: { set: Sql; where: Sql; before?: readonly Sql[] },
  ): Promise<boolean> => {
    const results = await database.batch([...before, ...changes(sale, change)]);
    return results.at(-1)?.affected === 1;
  };

  return {
    async open(stock, keeper) {
      for (const table of TABLES) await database.batch([table]);
      if (keeper === "by-inventory") {
        await inventory.set({ sku: shop, quantity: stock, operationId: `${shop}/open` });
        return;
      }
      await database.batch([
        sql`
          INSERT INTO lockstep_oversell_stock (shop, stock, fence, changed_by)
          VALUES (${shop}, ${stock}, ${""}, ${""})
          ${database.dialect.onConflict("shop")} stock = ${stock}`,
      ]);
    },

    async setIfAbsent(owner, ttl) {
      const expiresAt = sql`${now} + ${ttl * 1_000}`;
      const [, answer] = await database.batch([
        sql`
          INSERT INTO lockstep_oversell_lock (shop, owner, expires_at) VALUES (${shop}, ${owner}, ${expiresAt})
          ${database.dialect.onConflict("shop")}
            owner = CASE WHEN lockstep_oversell_lock.expires_at <= ${now}
              THEN ${owner} ELSE lockstep_oversell_lock.owner END,
            expires_at = CASE WHEN lockstep_oversell_lock.expires_at <= ${now}
              THEN ${expiresAt} ELSE lockstep_oversell_lock.expires_at END`,
        sql`SELECT owner FROM lockstep_oversell_lock WHERE shop = ${shop}`,
      ]);
      return answer?.rows[0] !== undefined && asText(answer.rows[0].owner) === owner;
    },

    async remove() {
      await database.batch([sql`DELETE FROM lockstep_oversell_lock WHERE shop = ${shop}`]);
    },

    async removeIfOwner(owner) {
      await database.batch([
        sql`DELETE FROM lockstep_oversell_lock WHERE shop = ${shop} AND owner = ${owner}`,
      ]);
    },

    async readStock() {
      const [row] = await database.read(
        sql`SELECT stock FROM lockstep_oversell_stock WHERE shop = ${shop}`,
      );
      return asNumber(row?.stock);
    },

    async claim(fence) {
      const results = await database.batch(claimAndRead(database.dialect, fence));
      checkClaim(fence, results.at(-1)?.rows ?? []);
    },

    async write(sale, stock, fence, claimed = false) {
      const text = fence?.toString() ?? "";
      const set = sql`stock = ${stock}, fence = ${text}`;
      const where = claimed ? isClaimed(database.dialect, fence) : sql`fence <= ${text}`;
      // Repeats the claim: its row stays locked until the commit.
      const before = fence && claimed ? [claim(database.dialect, fence)] : [];
      return orReplayed(async () =>
        (await sell(sale, { set, where, before })) ? "sold" : "refused",
      );
    },

    decrement(sale, ifEnough) {
      const set = sql`stock = stock - 1`;
      const where = ifEnough ? sql`stock >= 1` : sql`1 = 1`;
      return orReplayed(async () => ((await sell(sale, { set, where })) ? "sold" : "sold-out"));
    },

    row: {
      async readVersion() {
        const [row] = await database.read(
          sql`SELECT stock, changed_by FROM lockstep_oversell_stock WHERE shop = ${shop}`,
        );
        return { stock: asNumber(row?.stock), version: asText(row?.changed_by) };
      },

      // Every change puts a new value into changed_by: the column is the version.
      writeVersion: (sale, stock, version) =>
        orReplayed(async () => {
          const change = { set: sql`stock = ${stock}`, where: sql`changed_by = ${version}` };
          return (await sell(sale, change)) ? "sold" : "refused";
        }),

      sellUnderRowLock: (sale, work) =>
        orReplayed(() =>
          database.transaction(async (tx) => {
            const [answer] = await tx.batch([
              sql`
                SELECT stock FROM lockstep_oversell_stock WHERE shop = ${shop}
                ${database.dialect.forUpdate}`,
            ]);
            const stock = asNumber(answer?.rows[0]?.stock);
            await work(stock);
            if (stock < 1) return "sold-out";
            const change = { set: sql`stock = ${stock - 1}`, where: sql`1 = 1` };
            await tx.commit(changes(sale, change));
            return "sold";
          }),
        ),
    },

    totals: () => readTotals(database, shop),
    close: () => empty(database, shop),
  };
}

/** Calls `sell`; a sale that is already recorded changes nothing. */
async function orReplayed<T extends WriteResult | "sold-out">(
  sell: () => Promise<T>,
): Promise<T | "replayed"> {
  try {
    return await sell();
  } catch (error) {
    if (error instanceof DuplicateKeyError) return "replayed";
    throw error;
  }
}

/** Reads the sales from the shop's own tables and from the library's ledger: one of the two is empty. */
async function readTotals(database: Database, shop: string): Promise<ShopTotals> {
  const sales = await database.read(sql`
    SELECT order_id, stock FROM lockstep_oversell_sale WHERE shop = ${shop}
    UNION ALL
    SELECT operation_id, on_hand FROM lockstep_ledger
    WHERE sku = ${shop} AND kind = 'decrement' AND outcome = 'applied'`);
  const [stock] = await database.read(sql`
    SELECT on_hand AS stock FROM lockstep_stock WHERE sku = ${shop}
    UNION ALL
    SELECT stock FROM lockstep_oversell_stock WHERE shop = ${shop}`);
  const remaining = asNumber(stock?.stock);
  return {
    remaining,
    lowest: Math.min(remaining, ...sales.map((sale) => asNumber(sale.stock))),
    // Operation ids start with the shop's name, since they are unique among all shops.
    sales: sales.map((sale) => asText(sale.order_id).replace(`${shop}/`, "")),
  };
}

async function empty(database: Database, shop: string): Promise<void> {
  const lock = stockLock(shop);
  await database.batch([
    sql`DELETE FROM lockstep_oversell_lock WHERE shop = ${shop}`,
    sql`DELETE FROM lockstep_oversell_stock WHERE shop = ${shop}`,
    sql`DELETE FROM lockstep_oversell_sale WHERE shop = ${shop}`,
    sql`DELETE FROM lockstep_ledger WHERE sku = ${shop}`,
    sql`DELETE FROM lockstep_stock WHERE sku = ${shop}`,
    sql`DELETE FROM lockstep_claim WHERE resource = ${lock}`,
    sql`DELETE FROM lockstep_lock WHERE name = ${lock}`,
    sql`DELETE FROM lockstep_fence WHERE name = ${lock}`,
  ]);
}
