import { type ChildProcess, fork } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { sum } from "simple-statistics";
import type { Database } from "../../../core/database/sql.ts";
import type { Inventory } from "../../../core/inventory/inventory.ts";
import { type Fence, sealFence } from "../../../core/lock/fence.ts";
import { addOrders } from "../../../functions/batch/orders.ts";
import { tracked } from "../../support/running.ts";
import type { Block, Comparison, Reporter } from "../measure.ts";
import { BATCH, ORDERED_SKU, type Sale, SECRET, SKU } from "./sales.ts";

/** Processes that sell at once. */
const PROCESSES = 16;

/** The fewest open orders before a block, and how many times those that the largest block has answered. */
const [LEAST_OPEN, TIMES_ANSWERED] = [4_000, 3];

const SCRIPT = fileURLToPath(new URL("process.ts", import.meta.url));

export interface SellersOptions {
  readonly url: string;
  readonly database: Database;
  readonly stock: Inventory;

  /** Of the held lock of the hot sku. */
  readonly fence: Fence;
}

/** One hot sku, sold by processes of their own, which live until `close`. Rates are orders per second. */
export async function startSellers({ url, database, stock, fence }: SellersOptions) {
  const args = [url, await sealFence(fence, SECRET)];
  const sellers = Array.from({ length: PROCESSES }, () => tracked(fork(SCRIPT, args)));
  await Promise.all(sellers.map(answerOf));

  const sell = async (
    way: Sale["way"],
    some: readonly ChildProcess[],
    millis: number,
  ): Promise<Block> => {
    const startedAt = performance.now();
    const sold = some.map((seller) => {
      const answer = answerOf(seller);
      seller.send({ way, millis } satisfies Sale);
      return answer;
    });
    const shares = await Promise.all(sold);
    const elapsed = performance.now() - startedAt;
    const orders = sum(shares);
    // The mean time of an order, as one process sees it.
    const mean = (elapsed * some.length) / orders;
    return { rate: (orders / elapsed) * 1_000, millis: [mean], shares };
  };

  let open = 0;
  let wanted = LEAST_OPEN;
  const fulfilOrders = async (some: readonly ChildProcess[], millis: number) => {
    const orders = Array.from({ length: Math.max(0, wanted - open) }, () => {
      return { orderId: randomUUID(), sku: ORDERED_SKU, quantity: 1 };
    });
    open += await addOrders(database, orders);
    for (const sku of [SKU, ORDERED_SKU])
      await stock.set({ sku, quantity: 1_000_000, operationId: randomUUID() });
    const block = await sell("fulfil", some, millis);
    const answered = sum([...block.shares]);
    open -= answered;
    wanted = Math.max(wanted, TIMES_ANSWERED * answered);
    return block;
  };

  const contenders: readonly Reporter[] = [
    { name: plain, report: (millis) => sell("plain", sellers, millis) },
    { name: many, report: (millis) => sell("decrementMany", sellers, millis) },
    { name: fulfilBy(1), report: (millis) => fulfilOrders(sellers.slice(0, 1), millis) },
    { name: fulfilBy(PROCESSES), report: (millis) => fulfilOrders(sellers, millis) },
  ];
  return {
    contenders,
    async close() {
      for (const seller of sellers) seller.disconnect();
      await Promise.all(sellers.map((seller) => once(seller, "exit")));
    },
  };
}

/** Resolves to the next message of the process. Rejects if the process ends. */
function answerOf(seller: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    const onExit = () => reject(new Error("a process that sells has ended"));
    seller.once("exit", onExit);
    seller.once("message", (answer: number) => {
      seller.off("exit", onExit);
      resolve(answer);
    });
  });
}

const plain = `plain UPDATE, ${PROCESSES} processes`;
const many = `decrementMany of ${BATCH}, ${PROCESSES} processes`;

function fulfilBy(processes: number): string {
  return `orders fulfil, ${processes === 1 ? "1 process" : `${processes} processes`}`;
}

/** Of the contenders, over plain UPDATEs of as many processes: `one` is that of one process. */
export function comparedSellers(one: string): readonly Comparison[] {
  const pairs = [
    [fulfilBy(1), one],
    [many, plain],
    [fulfilBy(PROCESSES), plain],
  ] as const;
  return pairs.map(([of, over]) => {
    return { name: `rate of ${of} over ${over}`, of, over, by: "rate", aim: 1 };
  });
}
