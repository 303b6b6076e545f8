import { randomUUID } from "node:crypto";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sleep } from "../../core/lock/abort.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { Lock } from "../../core/lock/lock.ts";
import { type AnyStore, open } from "../../infra/open.ts";
import {
  type CriticalSection,
  type Delivery,
  type FromWorker,
  monotonicNow,
  type OrderAnswer,
  type ToWorker,
  type WorkerConfig,
} from "./messages.ts";
import { openShop } from "./open-shop.ts";
import type { Shop } from "./shop.ts";
import { stockKeeper } from "./strategy.ts";

/** A worker process of the shop: handles one order at a time, like a serverless function. */

let opened: AnyStore | undefined;
let config: WorkerConfig;
let shop: Shop;

process.on("message", (message: ToWorker) => {
  receive(message).catch((error) =>
    send({ type: "error", message: String(error?.stack ?? error) }),
  );
});
process.on("disconnect", () => process.exit());

async function receive(message: ToWorker): Promise<void> {
  if (message.type === "configure") {
    config = message.config;
    opened ??= await open(config.store);
    shop = openShop(opened, config.shop);
    await send({ type: "ready" });
  } else {
    const { answer, section } = await handle(message.delivery);
    await send({ type: "answer", answer, section });
  }
}

interface Handled {
  readonly answer: OrderAnswer;
  readonly section: CriticalSection | undefined;
}

async function handle(delivery: Delivery): Promise<Handled> {
  const held = await lock();
  if (held === undefined) return { answer: "busy", section: undefined };
  const from = monotonicNow();
  const section = () =>
    config.strategy.lock === "none" ? undefined : { from, to: monotonicNow() };
  try {
    // The call of the identity service.
    await sleep(delivery.fault === "slow" ? config.pauseMillis : 1);
    const answer = await sell(delivery, held.fence, section);
    if (delivery.fault === "kill-after") await die(section());
    return { answer, section: section() };
  } catch (error) {
    if (!hasCode(error, "FENCED_OUT")) throw error;
    return { answer: "refused", section: section() };
  } finally {
    await held.release();
  }
}

interface HeldLock {
  readonly fence: Fence | undefined;
  release(): Promise<unknown>;
}

/** How long an order waits for the lock before it returns to the queue, in milliseconds. */
const LOCK_WAIT = 10_000;

async function lock(): Promise<HeldLock | undefined> {
  const { strategy, ttlMillis } = config;
  if (strategy.lock === "none") return { fence: undefined, release: async () => {} };
  if (strategy.lock === "lockstep") return lockstepLock();
  const owner = randomUUID();
  const giveUpAt = monotonicNow() + LOCK_WAIT;
  while (!(await shop.setIfAbsent(owner, ttlMillis))) {
    if (monotonicNow() > giveUpAt) return undefined;
    await sleep(5 + Math.random() * 10);
  }
  const release =
    strategy.release === "unconditional" ? () => shop.remove() : () => shop.removeIfOwner(owner);
  return { fence: undefined, release };
}

async function lockstepLock(): Promise<HeldLock | undefined> {
  const { strategy, ttlMillis } = config;
  const options = { ttl: ttlMillis, wait: LOCK_WAIT, renew: strategy.renewal };
  try {
    const held = await opened?.locks.lock(stockLock(config.shop), options);
    return held && { fence: held.fence, release: () => release(held) };
  } catch (error) {
    if (hasCode(error, "LOCK_TIMEOUT", "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) return undefined;
    throw error;
  }
}

/** Releases the lock. A lost answer is ignored: an unreleased lock expires by itself. */
async function release(held: Lock): Promise<void> {
  try {
    await held.unlock();
  } catch (error) {
    if (!hasCode(error, "UNKNOWN_OUTCOME")) throw error;
  }
}

type GetSection = () => CriticalSection | undefined;

async function sell(
  { orderId, fault }: Delivery,
  fence: Fence | undefined,
  section: GetSection,
): Promise<OrderAnswer> {
  const { strategy } = config;
  const sale = { orderId, saleId: strategy.operationIds ? orderId : randomUUID() };
  if (strategy.stock === "conditional-decrement") {
    await injectFault(fault, section);
    return stockKeeper(strategy) === "by-inventory"
      ? sellFromInventory(orderId, strategy.fence === "none" ? undefined : fence)
      : toAnswer(await shop.decrement(sale, true));
  }
  if (fence && strategy.fence === "claimed") await shop.claim(fence);
  const stock = await shop.readStock();
  if (stock < 1) return "sold-out";
  await injectFault(fault, section);
  if (strategy.stock === "compare-then-decrement")
    return toAnswer(await shop.decrement(sale, false));
  return strategy.fence === "none"
    ? toAnswer(await shop.write(sale, stock - 1))
    : toAnswer(await shop.write(sale, stock - 1, fence, strategy.fence === "claimed"));
}

/** Sells a unit with the library's inventory. */
async function sellFromInventory(orderId: string, fence: Fence | undefined): Promise<OrderAnswer> {
  const operationId = `${config.shop}/${orderId}`;
  const change = { sku: config.shop, quantity: 1, operationId, fence };
  const answer = await opened?.inventory.decrement(change);
  return answer?.outcome === "applied" ? "sold" : "sold-out";
}

function toAnswer(written: Awaited<ReturnType<Shop["decrement"]>>): OrderAnswer {
  return written === "replayed" ? "sold" : written;
}

/** Spends the time between the read of the stock and the sale, and injects the order's fault. */
async function injectFault(fault: Delivery["fault"], section: GetSection): Promise<void> {
  await sleep(1 + Math.random() * 2);
  if (fault === "freeze") {
    await send({ type: "freezing" });
    process.kill(process.pid, "SIGSTOP");
    // A stop takes effect when the process next enters the kernel.
    await sleep(1);
  }
  if (fault === "kill-before") await die(section());
}

async function die(section: CriticalSection | undefined): Promise<never> {
  await send({ type: "dying", section });
  process.kill(process.pid, "SIGKILL");
  return new Promise(() => {});
}

function send(message: FromWorker): Promise<void> {
  return new Promise((resolve) => process.send?.(message, () => resolve()));
}
