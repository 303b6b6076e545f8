import { type Inventory, stockLock } from "../../core/inventory/inventory.ts";
import { sleep } from "../../core/lock/abort.ts";
import type { Fence } from "../../core/lock/fence.ts";
import {
  type Compare,
  type Etcd,
  get,
  isAbsent,
  isCreated,
  NoLeaseError,
  put,
  remove,
} from "../../core/stores/etcd/client/etcd.ts";
import { keyOfFence, ownKey } from "../../core/stores/etcd/client/names.ts";
import { claimValue } from "../../core/stores/etcd/inventory/fence.ts";
import { EtcdLease } from "../../core/stores/etcd/locks/lease.ts";
import { readLedger, salesInLedger } from "./ledger.ts";
import type { Sale, Shop, ShopTotals, WriteResult } from "./shop.ts";

/** Opens a shop in etcd. Its name is also its sku in the library's inventory. */
export function etcdShop(etcd: Etcd, prefix: string, inventory: Inventory, shop: string): Shop {
  const own = (...segments: readonly string[]) => ownKey(prefix, "oversell", shop, ...segments);
  const lockKey = own("lock");
  const stockKey = own("stock");
  const fenceKey = own("fence");
  const sales = `${own("sale")}/`;
  const saleKey = ({ saleId }: Sale) => own("sale", saleId);
  const claimKey = ownKey(prefix, "claim", stockLock(shop));

  const read = async () => {
    const { kvs } = await etcd.range(get(stockKey));
    return { stock: Number(kvs[0]?.value), since: kvs[0]?.modRevision ?? 0n };
  };

  /** Writes the sale and the remaining stock in one transaction. `refused`: a condition does not hold. */
  const sell = async (
    sale: Sale,
    stock: number,
    conditions: readonly Compare[],
    fence = "",
  ): Promise<WriteResult> => {
    const { succeeded, answers } = await etcd.txn({
      when: [isAbsent(saleKey(sale)), ...conditions],
      do: [
        put(stockKey, String(stock)),
        put(fenceKey, fence),
        put(saleKey(sale), JSON.stringify({ orderId: sale.orderId, stock })),
      ],
      otherwise: [get(saleKey(sale))],
    });
    if (succeeded) return "sold";
    return answers[0]?.kvs[0] ? "replayed" : "refused";
  };

  return {
    async open(stock, keeper) {
      if (keeper === "by-inventory") {
        await inventory.set({ sku: shop, quantity: stock, operationId: `${shop}/open` });
      } else {
        await etcd.txn({ when: [], do: [put(stockKey, String(stock)), put(fenceKey, "")] });
      }
    },

    async setIfAbsent(owner, ttl) {
      const lease = await EtcdLease.grant(etcd, ttl);
      try {
        const { succeeded } = await etcd.txn({
          when: [isAbsent(lockKey)],
          do: [put(lockKey, owner, lease.id)],
        });
        if (!succeeded) await lease.revoke();
        return succeeded;
      } catch (error) {
        // The lease may expire before the transaction arrives.
        if (error instanceof NoLeaseError) return false;
        throw error;
      }
    },

    async remove() {
      await etcd.txn({ when: [], do: [remove(lockKey)] });
    },

    async removeIfOwner(owner) {
      const isOurs = { keys: lockKey, target: "value", is: "=", than: owner } as const;
      await etcd.txn({ when: [isOurs], do: [remove(lockKey)] });
    },

    readStock: async () => (await read()).stock,
    claim: (fence) => inventory.claim(fence),

    write: (sale, stock, fence, claimed = false) =>
      sell(
        sale,
        stock,
        fence ? (claimed ? isClaimed(fence) : isNotLate(fence)) : [],
        `${fence ?? ""}`,
      ),

    async decrement(sale, ifEnough) {
      for (;;) {
        const { stock, since } = await read();
        if (ifEnough && stock < 1) return "sold-out";
        const unchanged = { keys: stockKey, target: "mod", is: "=", than: since } as const;
        const written = await sell(sale, stock - 1, [unchanged]);
        if (written !== "refused") return written;
        await sleep(Math.random() * 10);
      }
    },

    totals: () => readTotals(),

    async close() {
      const all = [
        `${own()}/`,
        `${ownKey(prefix, "stock", shop)}/`,
        ownKey(prefix, "operation", `${shop}/`),
      ];
      const removals = all.map((start) => remove({ prefix: start }));
      await etcd.txn({ when: [], do: [...removals, remove(claimKey)] });
    },
  };

  /** Compares that the claim is current and the lock is held. */
  function isClaimed(fence: Fence): readonly Compare[] {
    const key = keyOfFence(fence);
    const claimed = { keys: claimKey, target: "value", is: "=", than: claimValue(fence) } as const;
    return key === undefined ? [claimed] : [claimed, isCreated(key, fence.token)];
  }

  /** Compares that no later holder has written: the text of fences sorts like fences. */
  function isNotLate(fence: Fence): readonly Compare[] {
    return [{ keys: fenceKey, target: "value", is: "<", than: `${fence}\0` }];
  }

  /** Reads the sales from the shop's own keys and from the library's ledger: one of the two is empty. */
  async function readTotals(): Promise<ShopTotals> {
    const { kvs } = await etcd.range(get({ prefix: sales }));
    const byHand = kvs.map(({ value }) => JSON.parse(value) as { orderId: string; stock: number });
    const all = [...byHand, ...salesInLedger(await readLedger(inventory, shop), shop)];
    const remaining = (await inventory.get(shop))?.onHand ?? (await read()).stock;
    return {
      remaining,
      lowest: Math.min(remaining, ...all.map(({ stock }) => stock)),
      sales: all.map(({ orderId }) => orderId),
    };
  }
}
