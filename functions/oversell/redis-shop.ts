import { type Inventory, stockLock } from "../../core/inventory/inventory.ts";
import { fenceOwner } from "../../core/lock/fence.ts";
import type { Millis } from "../../core/lock/time.ts";
import { keyOf } from "../../core/stores/redis/client/names.ts";
import { type Argument, type Redis, script } from "../../core/stores/redis/client/redis.ts";
import { stockKeys } from "../../core/stores/redis/inventory/change.ts";
import { readLedger, salesInLedger } from "./ledger.ts";
import type { Sale, Shop, ShopTotals, WriteResult } from "./shop.ts";

/** Opens a shop in Redis, with the commands of the incident. Its name is also its sku in the library's inventory. */
export function redisShop(redis: Redis, prefix: string, inventory: Inventory, shop: string): Shop {
  const lockKey = keyOf(prefix, "oversell-lock", shop);
  const stockKey = keyOf(prefix, "oversell-stock", shop);
  const salesKey = keyOf(prefix, "oversell-sales", shop);
  const fenceKey = keyOf(prefix, "oversell-fence", shop);
  const library = stockKeys(prefix);
  const claimKey = library.claim(stockLock(shop));

  const sell = async (
    { saleId, orderId }: Sale,
    args: readonly Argument[],
  ): Promise<WriteResult | "sold-out"> => {
    const keys = [stockKey, salesKey, fenceKey, claimKey];
    return (await redis.run(SELL, { keys, args: [saleId, orderId, ...args] })) as WriteResult;
  };

  return {
    async open(stock, keeper) {
      if (keeper === "by-inventory") {
        await inventory.set({ sku: shop, quantity: stock, operationId: `${shop}/open` });
      } else {
        await redis.call(["SET", stockKey, stock]);
      }
    },

    async setIfAbsent(owner, ttl) {
      return (await redis.call(["SET", lockKey, owner, ...expiryIn(ttl), "NX"])) === "OK";
    },

    async remove() {
      await redis.call(["DEL", lockKey]);
    },

    async removeIfOwner(owner) {
      await redis.run(COMPARE_AND_DELETE, { keys: [lockKey], args: [owner] });
    },

    readStock: async () => Number(await redis.call(["GET", stockKey], { reads: true })),
    claim: (fence) => inventory.claim(fence),

    async write(sale, stock, fence, claimed = false) {
      const owner = (fence && fenceOwner(fence)) ?? "";
      const args = ["set", stock, String(fence ?? ""), claimed ? `${fence} ${owner}` : ""];
      return (await sell(sale, args)) as WriteResult;
    },

    setnx: {
      async setnx(owner) {
        return Number(await redis.call(["SETNX", lockKey, owner])) === 1;
      },

      async expire(ttl) {
        const [unit, time] = expiryIn(ttl);
        await redis.call([unit === "EX" ? "EXPIRE" : "PEXPIRE", lockKey, time]);
      },

      async ownerWithoutExpiry() {
        const owner = await redis.run(OWNER_WITHOUT_EXPIRY, { keys: [lockKey], args: [] });
        return owner === null ? undefined : String(owner);
      },
    },

    counter: {
      decr: async () => Number(await redis.call(["DECR", stockKey])),

      async incr() {
        await redis.call(["INCR", stockKey]);
      },

      async record({ saleId, orderId }, stock) {
        await redis.call(["HSET", salesKey, saleId, `${stock} ${orderId}`]);
      },
    },

    decrement: (sale, ifEnough) => sell(sale, ["decrement", ifEnough ? 1 : 0, "", ""]),
    totals: () => readTotals(),

    async close() {
      const ids = (await readLedger(inventory, shop)).flatMap(
        ({ operationId }) => operationId ?? [],
      );
      const own = [lockKey, stockKey, salesKey, fenceKey, claimKey];
      const stock = [library.stock(shop), library.reservations(shop), library.ledger(shop)];
      const locks = ["lock", "fence", "wait", "turn"].map((kind) =>
        keyOf(prefix, kind, stockLock(shop)),
      );
      const all = [...own, ...stock, ...locks, ...ids.map(library.operation)];
      while (all.length > 0) await redis.call(["DEL", ...(all.splice(0, 1_000) as [string])]);
    },
  };

  /** Reads the sales from the shop's own keys and from the library's ledger: one of the two is empty. */
  async function readTotals(): Promise<ShopTotals> {
    const found = await redis.call(["HVALS", salesKey], { reads: true });
    const ownSales = (found as readonly string[]).map((text) => {
      const [stock = "", orderId = ""] = text.split(" ");
      return { orderId, stock: Number(stock) };
    });
    const all = [...ownSales, ...salesInLedger(await readLedger(inventory, shop), shop)];
    const ownRemaining = await redis.call(["GET", stockKey], { reads: true });
    const remaining = (await inventory.get(shop))?.onHand ?? Number(ownRemaining);
    return {
      remaining,
      lowest: Math.min(remaining, ...all.map(({ stock }) => stock)),
      sales: all.map(({ orderId }) => orderId),
    };
  }
}

/** Returns EX as in the incident if the ttl is in whole seconds, otherwise PX. */
function expiryIn(ttl: Millis): readonly [string, number] {
  return ttl % 1_000 === 0 ? ["EX", ttl / 1_000] : ["PX", ttl];
}

/** KEYS: the lock. ARGV: its owner. */
const COMPARE_AND_DELETE = script(`
  return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0
`);

/** KEYS: the lock. Returns its owner if it has no expiry. */
const OWNER_WITHOUT_EXPIRY = script(`
  return redis.call('TTL', KEYS[1]) == -1 and redis.call('GET', KEYS[1])
`);

/**
 * KEYS: the stock, the sales, the last writer's fence, the library's claim. ARGV: the sale, its order; "set" and the
 * remaining stock, or "decrement" and 1 if the stock must suffice; the fence or ""; the required claim or "".
 *
 * Writes the sale together with the stock. A sale that is already recorded changes nothing.
 */
const SELL = script(`
  local stock, sales, lastFence, claim = unpack(KEYS)
  local sale, order, how, number, fence, claimed = unpack(ARGV)
  if redis.call('HEXISTS', sales, sale) == 1 then return 'replayed' end
  if claimed ~= '' and redis.call('GET', claim) ~= claimed then return 'refused' end
  if claimed == '' and fence < (redis.call('GET', lastFence) or '') then return 'refused' end
  if how == 'set' then
    redis.call('SET', stock, number)
  else
    local left = tonumber(redis.call('GET', stock)) - 1
    if number == '1' and left < 0 then return 'sold-out' end
    redis.call('SET', stock, left)
  end
  redis.call('SET', lastFence, fence)
  redis.call('HSET', sales, sale, redis.call('GET', stock) .. ' ' .. order)
  return 'sold'
`);
