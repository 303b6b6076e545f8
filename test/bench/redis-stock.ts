import { createHash, randomUUID } from "node:crypto";
import { Redis as Ioredis } from "ioredis";
import { type Inventory, stockLock } from "../../core/inventory/inventory.ts";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import { redisInventory } from "../../core/stores/redis/inventory/index.ts";
import { redisLocks } from "../../core/stores/redis/locks/index.ts";
import type { Comparison, Contender } from "./measure.ts";
import { clientsOf, rate } from "./sql.ts";

const CLIENTS = 16;
const BATCH = 200;
const SKU = "teapot";

/** The usual script: compare and decrement. */
const SELL = `
  if tonumber(redis.call("GET", KEYS[1])) < tonumber(ARGV[1]) then return -1 end
  return redis.call("DECRBY", KEYS[1], ARGV[1])
`;

/** Stock on Redis: a fenced decrement with its ledger, compared with the decrement of a number. */
export async function stockOnRedis(port: number) {
  const theirs = Array.from({ length: CLIENTS }, () => new Ioredis({ port }));
  const [raw] = theirs as [Ioredis, ...Ioredis[]];
  await raw.set("bench-stock", 1_000_000_000);
  await raw.script("LOAD", SELL);
  const sha1 = createHash("sha1").update(SELL).digest("hex");

  const ours = Array.from({ length: CLIENTS }, () => redisClient({ host: "127.0.0.1", port }));
  const stocks = ours.map((redis) => redisInventory(redis));
  const [stock] = stocks as [Inventory, ...Inventory[]];
  const locks = redisLocks(redisClient({ host: "127.0.0.1", port }), { closeRedis: true });
  await stock.set({ sku: SKU, quantity: 1_000_000, operationId: randomUUID() });
  const { fence } = await locks.lock(stockLock(SKU), { ttl: 60_000, wait: 0 });

  const sell = async (client: number) => theirs[client]?.evalsha(sha1, 1, "bench-stock", 1);
  const order = () => ({ operationId: randomUUID(), quantity: 1 });
  const sellOurs = async (client: number) =>
    stocks[client]?.decrement({ sku: SKU, fence, ...order() });

  const contenders: readonly Contender[] = [
    { name: plain(1), run: sell },
    { name: plain(CLIENTS), clients: CLIENTS, run: sell },
    { name: fenced(1), run: sellOurs },
    { name: fenced(CLIENTS), clients: CLIENTS, run: sellOurs },
    { name: SHARED_CLIENT, clients: CLIENTS, run: () => sellOurs(0) },
    {
      name: MANY,
      batch: BATCH,
      run: () =>
        stock.decrementMany({ sku: SKU, fence, orders: Array.from({ length: BATCH }, order) }),
    },
  ];
  const close = async () => {
    await locks.close();
    await Promise.all(ours.map((redis) => redis.close()));
    for (const client of theirs) client.disconnect();
  };
  return { contenders, comparisons: COMPARISONS, close };
}

function plain(clients: number): string {
  return `raw compare and decrement, ${clientsOf(clients)}`;
}

function fenced(clients: number): string {
  return `fenced decrement, ${clientsOf(clients)}`;
}

const SHARED_CLIENT = `fenced decrement, ${CLIENTS} callers of one client`;
const MANY = `decrementMany of ${BATCH}, 1 client`;

const COMPARISONS: readonly Comparison[] = [
  rate(fenced(1), plain(1), 0.6),
  rate(fenced(CLIENTS), plain(CLIENTS), 0.6),
  rate(SHARED_CLIENT, plain(CLIENTS), 0.6),
  rate(MANY, plain(1), 4),
];
