import { type Inventory, stockLock } from "../../core/inventory/inventory.ts";
import { sleep } from "../../core/lock/abort.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { Dynamodb, ItemWrite } from "../../core/stores/dynamodb/client/dynamodb.ts";
import { claimKey, raiseClaim } from "../../core/stores/dynamodb/inventory/fence.ts";
import {
  operationKey,
  stockKey as stockKeyOf,
} from "../../core/stores/dynamodb/inventory/items.ts";
import { keyOf as lockItem } from "../../core/stores/dynamodb/locks/claims.ts";
import { readLedger, salesInLedger } from "./ledger.ts";
import type { Sale, Shop, ShopTotals, WriteResult } from "./shop.ts";

/** Opens a shop in DynamoDB. Its name is also its sku in the library's inventory. */
export function dynamodbShop(dynamodb: Dynamodb, inventory: Inventory, shop: string): Shop {
  const pk = `oversell/${shop}`;
  const lockKey = { pk, sk: "lock" };
  const stockKey = { pk, sk: "stock" };
  const saleKey = ({ saleId }: Sale) => ({ pk, sk: `sale/${saleId}` });

  const read = async () => {
    const item = await dynamodb.get(stockKey);
    return { stock: Number(item?.stock), since: Number(item?.version) };
  };

  /** Writes the sale and the remaining stock in one transaction. `refused`: a condition does not hold. */
  const sell = async (
    sale: Sale,
    stock: number,
    when: string,
    values: Readonly<Record<string, string | number>>,
    more: readonly ItemWrite[] = [],
  ): Promise<WriteResult> => {
    const { done, failed } = await dynamodb.write([
      {
        key: saleKey(sale),
        update: "SET #orderId = :orderId, #stock = :stock",
        when: "attribute_not_exists(#pk)",
        values: { orderId: sale.orderId, stock },
      },
      {
        key: stockKey,
        update: "SET #stock = :stock, #fence = :fence ADD #version :one",
        when,
        values: { stock, fence: "-", one: 1, ...values },
      },
      ...more,
    ]);
    if (done) return "sold";
    return failed[0] ? "replayed" : "refused";
  };

  return {
    async open(stock, keeper) {
      if (keeper === "by-inventory") {
        await inventory.set({ sku: shop, quantity: stock, operationId: `${shop}/open` });
        return;
      }
      const values = { stock, fence: "-", version: 0 };
      const update = "SET #stock = :stock, #fence = :fence, #version = :version";
      await dynamodb.write([{ key: stockKey, update, values }]);
    },

    async setIfAbsent(owner, ttl) {
      // The expiry that most guides write: by the clock of the client.
      const values = { owner, expiresAt: Date.now() + ttl, now: Date.now() };
      const { done } = await dynamodb.write([
        {
          key: lockKey,
          update: "SET #owner = :owner, #expiresAt = :expiresAt",
          when: "attribute_not_exists(#pk) OR #expiresAt < :now",
          values,
        },
      ]);
      return done;
    },

    async remove() {
      await dynamodb.write([{ key: lockKey }]);
    },

    async removeIfOwner(owner) {
      await dynamodb.write([{ key: lockKey, when: "#owner = :owner", values: { owner } }]);
    },

    readStock: async () => (await read()).stock,
    claim: (fence) => inventory.claim(fence),

    write: (sale, stock, fence, claimed = false) =>
      fence === undefined
        ? sell(sale, stock, "attribute_exists(#pk)", {})
        : sell(
            sale,
            stock,
            // The text of fences sorts like fences, and "-" before all of them.
            "#fence <= :fence",
            { fence: String(fence) },
            claimed ? [requireClaim(fence)] : [],
          ),

    async decrement(sale, ifEnough) {
      for (;;) {
        const { stock, since } = await read();
        if (ifEnough && stock < 1) return "sold-out";
        const written = await sell(sale, stock - 1, "#version = :since", { since });
        if (written !== "refused") return written;
        await sleep(Math.random() * 10);
      }
    },

    totals: () => readTotals(),

    async close() {
      const ledger = await readLedger(inventory, shop);
      const ids = ledger.flatMap(({ operationId }) => operationId ?? []);
      const lock = stockLock(shop);
      const all = [...ids.map(operationKey), claimKey(lock), lockItem(lock)];
      for (const partition of [pk, stockKeyOf(shop).pk]) {
        const everything = { pk: partition, from: " ", to: "~", limit: 100 };
        for await (const { items } of dynamodb.query(everything)) {
          all.push(...items.map(({ pk = "", sk = "" }) => ({ pk, sk })));
        }
      }
      while (all.length > 0) await dynamodb.write(all.splice(0, 100).map((key) => ({ key })));
    },
  };

  /** Reads the sales from the shop's own items and from the library's ledger: one of the two is empty. */
  async function readTotals(): Promise<ShopTotals> {
    const all = salesInLedger(await readLedger(inventory, shop), shop).slice();
    for await (const { items } of dynamodb.query({ pk, from: "sale/", to: "sale/~", limit: 100 })) {
      all.push(...items.map(({ orderId = "", stock }) => ({ orderId, stock: Number(stock) })));
    }
    const remaining = (await inventory.get(shop))?.onHand ?? (await read()).stock;
    return {
      remaining,
      lowest: Math.min(remaining, ...all.map(({ stock }) => stock)),
      sales: all.map(({ orderId }) => orderId),
    };
  }
}

/** Holds if the claim is this holder's. */
function requireClaim(fence: Fence): ItemWrite {
  return { ...raiseClaim(fence), when: "#fence = :fence AND #holder = :holder" };
}
