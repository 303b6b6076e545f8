import { randomUUID } from "node:crypto";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sleep } from "../../core/lock/abort.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { Fence } from "../../core/lock/fence.ts";
import { type Opened, open } from "../../infra/open.ts";
import type { Answer, Delivery, FromWorker, Section, Shift, ToWorker } from "./messages.ts";
import { openShop } from "./open-shop.ts";
import type { Shop } from "./shop.ts";
import { keptBy } from "./strategy.ts";

/** One process of the shop: takes one order at a time, as a function does. */

let opened: Opened | undefined;
let shift: Shift;
let shop: Shop;

process.on("message", (message: ToWorker) => {
  receive(message).catch((error) =>
    tell({ type: "error", message: String(error?.stack ?? error) }),
  );
});
process.on("disconnect", () => process.exit());

async function receive(message: ToWorker): Promise<void> {
  if (message.type === "shift") {
    shift = message.shift;
    opened ??= await open(shift.store);
    shop = openShop(opened, shift.shop);
    await tell({ type: "ready" });
  } else {
    const { answer, section } = await handle(message.delivery);
    await tell({ type: "answer", answer, section });
  }
}

interface Handled {
  readonly answer: Answer;
  readonly section: Section | undefined;
}

async function handle(delivery: Delivery): Promise<Handled> {
  const held = await lock();
  if (held === undefined) return { answer: "busy", section: undefined };
  const from = now();
  const section = () => (shift.strategy.lock === "none" ? undefined : { from, to: now() });
  try {
    // The identity service: usually quick.
    await sleep(delivery.fault === "slow" ? shift.pauseMillis : 1);
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

/** How long an order waits for the lock before it goes back to the queue, in milliseconds. */
const PATIENCE = 10_000;

async function lock(): Promise<HeldLock | undefined> {
  const { strategy, ttlMillis } = shift;
  if (strategy.lock === "none") return { fence: undefined, release: async () => {} };
  if (strategy.lock === "lockstep") return lockstepLock();
  const owner = randomUUID();
  const giveUpAt = now() + PATIENCE;
  while (!(await shop.setIfAbsent(owner, ttlMillis))) {
    if (now() > giveUpAt) return undefined;
    await sleep(5 + Math.random() * 10);
  }
  const release =
    strategy.release === "unconditional" ? () => shop.remove() : () => shop.removeIfOwner(owner);
  return { fence: undefined, release };
}

async function lockstepLock(): Promise<HeldLock | undefined> {
  const { strategy, ttlMillis } = shift;
  const options = { ttl: ttlMillis, wait: PATIENCE, renew: strategy.renewal };
  try {
    const held = await opened?.locks.lock(stockLock(shift.shop), options);
    return held && { fence: held.fence, release: () => held[Symbol.asyncDispose]() };
  } catch (error) {
    if (hasCode(error, "LOCK_TIMEOUT", "STORE_UNAVAILABLE")) return undefined;
    throw error;
  }
}

type Sectioned = () => Section | undefined;

async function sell(
  { orderId, fault }: Delivery,
  fence: Fence | undefined,
  section: Sectioned,
): Promise<Answer> {
  const { strategy } = shift;
  const sale = { orderId, saleId: strategy.operationIds ? orderId : randomUUID() };
  if (strategy.stock === "conditional-decrement") {
    await meanwhile(fault, section);
    return keptBy(strategy) === "by-inventory"
      ? sellOnce(orderId, strategy.fence === "none" ? undefined : fence)
      : toAnswer(await shop.decrement(sale, true));
  }
  if (fence && strategy.fence === "claimed") await shop.claim(fence);
  const stock = await shop.readStock();
  if (stock < 1) return "sold-out";
  await meanwhile(fault, section);
  if (strategy.stock === "compare-then-decrement")
    return toAnswer(await shop.decrement(sale, false));
  return strategy.fence === "none"
    ? toAnswer(await shop.write(sale, stock - 1))
    : toAnswer(await shop.write(sale, stock - 1, fence, strategy.fence === "claimed"));
}

/** By the library's own inventory. */
async function sellOnce(orderId: string, fence: Fence | undefined): Promise<Answer> {
  const operationId = `${shift.shop}/${orderId}`;
  const change = { sku: shift.shop, quantity: 1, operationId, fence };
  const answer = await opened?.inventory?.decrement(change);
  return answer?.outcome === "applied" ? "sold" : "sold-out";
}

function toAnswer(written: Awaited<ReturnType<Shop["decrement"]>>): Answer {
  return written === "replayed" ? "sold" : written;
}

/** Between the look at the stock and the sale an order is made out, and sometimes the process is cut short. */
async function meanwhile(fault: Delivery["fault"], section: Sectioned): Promise<void> {
  await sleep(1 + Math.random() * 2);
  if (fault === "freeze") {
    await tell({ type: "freezing" });
    process.kill(process.pid, "SIGSTOP");
    // A stop takes hold when the process next enters the kernel.
    await sleep(1);
  }
  if (fault === "kill-before") await die(section());
}

async function die(section: Section | undefined): Promise<never> {
  await tell({ type: "dying", section });
  process.kill(process.pid, "SIGKILL");
  return new Promise(() => {});
}

function now(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

function tell(message: FromWorker): Promise<void> {
  return new Promise((resolve) => process.send?.(message, () => resolve()));
}
