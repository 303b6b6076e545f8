import { type Inventory, stockLock } from "../../core/inventory/inventory.ts";
import { keysUnder } from "../../core/inventory/redis/keys.ts";
import { fenceOwner } from "../../core/lock/fence.ts";
import type { Millis } from "../../core/lock/time.ts";
import { keyOf } from "../../core/redis/names.ts";
import { type Argument, type Redis, script } from "../../core/redis/redis.ts";
import { entriesOf, salesIn } from "./ledger.ts";
import type { Books, Sale, Shop, Written } from "./shop.ts";

/** A shop in Redis, by the very commands of the incident. Its name is also the sku that the library's inventory sells. */
export function redisShop(redis: Redis, prefix: string, inventory: Inventory, shop: string): Shop {
  const lockKey = keyOf(prefix, "oversell-lock", shop);
  const stockKey = keyOf(prefix, "oversell-stock", shop);
  const salesKey = keyOf(prefix, "oversell-sales", shop);
  const fenceKey = keyOf(prefix, "oversell-fence", shop);
  const library = keysUnder(prefix);
  const claimKey = library.claim(stockLock(shop));

  const sell = async (
    { saleId, orderId }: Sale,
    args: readonly Argument[],
  ): Promise<Written | "sold-out"> => {
    const keys = [stockKey, salesKey, fenceKey, claimKey];
    return (await redis.run(SELL, { keys, args: [saleId, orderId, ...args] })) as Written;
  };

  return {
    async open(stock, kept) {
      if (kept === "by-inventory") {
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
      return (await sell(sale, args)) as Written;
    },

    decrement: (sale, ifEnough) => sell(sale, ["decrement", ifEnough ? 1 : 0, "", ""]),
    books: () => readBooks(),

    async close() {
      const ids = (await entriesOf(inventory, shop)).flatMap(
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

  /** Either the hand-written books have sales, or the library's ledger. */
  async function readBooks(): Promise<Books> {
    const found = await redis.call(["HVALS", salesKey], { reads: true });
    const byHand = (found as readonly string[]).map((text) => {
      const [stock = "", orderId = ""] = text.split(" ");
      return { orderId, stock: Number(stock) };
    });
    const all = [...byHand, ...salesIn(await entriesOf(inventory, shop), shop)];
    const byHandLeft = await redis.call(["GET", stockKey], { reads: true });
    const remaining = (await inventory.get(shop))?.onHand ?? Number(byHandLeft);
    return {
      remaining,
      lowest: Math.min(remaining, ...all.map(({ stock }) => stock)),
      sales: all.map(({ orderId }) => orderId),
    };
  }
}

/** As in the incident, which counted in seconds, wherever the ttl is whole seconds. */
function expiryIn(ttl: Millis): readonly [string, number] {
  return ttl % 1_000 === 0 ? ["EX", ttl / 1_000] : ["PX", ttl];
}

/** KEYS: the lock. ARGV: its owner. */
const COMPARE_AND_DELETE = script(`
  return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0
`);

/**
 * KEYS: the stock, the sales, the last writer's fence, the library's claim. ARGV: the sale, its order; "set" and the
 * stock that it leaves, or "decrement" and whether only what is there may be sold; the fence or "", and the claim that
 * has to stand or "".
 *
 * It records the sale together with what it does to the stock; a sale that is recorded already changes nothing.
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
