import { randomUUID } from "node:crypto";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sleep } from "../../core/lock/abort.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { Fence } from "../../core/lock/fence.ts";
import { KeyedQueue } from "../../core/lock/keyed-queue.ts";
import type { AnyStore } from "../../infra/open.ts";
import {
  decrAndTest,
  pollPause,
  sellByVersion,
  sellUnderRowLock,
  setnxThenExpire,
} from "./known-ways.ts";
import type { Delivery, Fault, HandledOrder, OrderAnswer, WorkerConfig } from "./messages.ts";
import { openShop } from "./open-shop.ts";
import type { Shop, WriteResult } from "./shop.ts";
import { stockKeeper } from "./strategy.ts";
import { monotonicNow, Trace } from "./trace.ts";

/** Freezes or kills the process. */
export type InjectFault = (fault: Fault, trace: Trace) => Promise<void>;

interface HeldLock {
  readonly fence: Fence | undefined;
  release(): Promise<unknown>;
}

/** How long an order waits for the lock before it returns to the queue, in milliseconds. */
const LOCK_WAIT = 10_000;

/** Handles the orders of a shop with one strategy. */
export class OrderHandler {
  readonly #opened: AnyStore;
  readonly #locks: AnyStore;
  readonly #shop: Shop;
  readonly #config: WorkerConfig;
  readonly #injectFault: InjectFault;

  /** The mutex of this process. */
  readonly #mutex = new KeyedQueue(1);

  constructor(
    opened: AnyStore,
    config: WorkerConfig,
    injectFault: InjectFault,
    locks: AnyStore = opened,
  ) {
    this.#opened = opened;
    this.#locks = locks;
    this.#shop = openShop(opened, config.shop, locks);
    this.#config = config;
    this.#injectFault = injectFault;
  }

  /** Handles an order of a sale that began at `startedAt`, by monotonicNow(). */
  async handle(delivery: Delivery, startedAt: number): Promise<HandledOrder> {
    const trace = new Trace(startedAt);
    const answer = await orBusy(() => this.#handle(delivery, trace));
    return { answer, trace: trace.events };
  }

  async #handle(delivery: Delivery, trace: Trace): Promise<OrderAnswer> {
    const isLocked = this.#config.strategy.lock !== "none";
    if (isLocked) trace.add("asks");
    const held = await this.#lock(delivery, trace);
    if (held === "busy" || held === "stuck") return held;
    if (isLocked) trace.add("holds", held.fence && { token: String(held.fence.token) });
    try {
      await this.#identify(delivery, trace);
      const answer = await this.#sell(delivery, held.fence, trace);
      if (delivery.fault === "kill-after") await this.#injectFault("kill-after", trace);
      return answer;
    } catch (error) {
      if (!hasCode(error, "FENCED_OUT")) throw error;
      return "refused";
    } finally {
      if (isLocked) trace.add("releases");
      // A lock that was not released expires by itself.
      await orBusy(() => held.release());
    }
  }

  async #lock({ fault }: Delivery, trace: Trace): Promise<HeldLock | "busy" | "stuck"> {
    const { strategy, ttlMillis } = this.#config;
    if (strategy.lock === "none") return { fence: undefined, release: async () => {} };
    if (strategy.lock === "lockstep") return this.#lockstepLock();
    if (strategy.lock === "in-process") return this.#lockMutex();
    const shop = this.#shop;
    const owner = randomUUID();
    const beforeExpire = async () => {
      if (fault === "kill-before") await this.#injectFault(fault, trace);
    };
    const options = { owner, ttlMillis, waitMillis: LOCK_WAIT, beforeExpire };
    const taken =
      strategy.lock === "setnx-then-expire"
        ? await setnxThenExpire(existing(shop.setnx), options)
        : await poll(() => shop.setIfAbsent(owner, ttlMillis));
    if (taken !== "held") return taken;
    const isChecked = strategy.release === "owner-checked";
    const release = () => (isChecked ? shop.removeIfOwner(owner) : shop.remove());
    return { fence: undefined, release };
  }

  async #lockMutex(): Promise<HeldLock | "busy"> {
    const { shop } = this.#config;
    const taken = await poll(async () => this.#mutex.tryEnter(shop));
    const release = async () => this.#mutex.leave(shop);
    return taken === "busy" ? taken : { fence: undefined, release };
  }

  async #lockstepLock(): Promise<HeldLock | "busy"> {
    const { strategy, ttlMillis, shop } = this.#config;
    const options = { ttl: ttlMillis, wait: LOCK_WAIT, renew: strategy.renewal };
    const held = await orBusy(() => this.#locks.locks.lock(stockLock(shop), options));
    return held === "busy" ? held : { fence: held.fence, release: () => held.unlock() };
  }

  /** Calls the identity service. While the service is overloaded, it answers all its callers at once. */
  async #identify({ fault }: Delivery, trace: Trace): Promise<void> {
    const { answersAt, pauseMillis } = this.#config;
    trace.add("calls");
    const now = trace.now();
    const answerAt = answersAt.find((at) => at > now);
    if (answerAt !== undefined) await sleep(answerAt - now);
    else await sleep(fault === "slow" ? pauseMillis : 1);
    trace.add("identified");
  }

  async #sell(
    { orderId, fault }: Delivery,
    fence: Fence | undefined,
    trace: Trace,
  ): Promise<OrderAnswer> {
    const { strategy } = this.#config;
    const shop = this.#shop;
    const sale = { orderId, saleId: strategy.operationIds ? orderId : randomUUID() };
    const work = () => this.#work(fault, trace);
    if (strategy.stock === "decr-and-test")
      return decrAndTest(existing(shop.counter), sale, trace, work);
    if (strategy.stock === "version-column")
      return sellByVersion(existing(shop.row), sale, trace, work);
    if (strategy.stock === "select-for-update")
      return sellUnderRowLock(existing(shop.row), sale, trace, work);
    if (strategy.stock === "conditional-decrement") {
      await work();
      return stockKeeper(strategy) === "by-inventory"
        ? this.#sellFromInventory(orderId, fence, trace)
        : toAnswer(await trace.request(() => shop.decrement(sale, true), toEvent));
    }
    if (fence && strategy.fence === "claimed") {
      await trace.request(
        () => shop.claim(fence),
        () => ({ type: "claimed" }),
      );
    }
    const stock = await trace.request(
      () => shop.readStock(),
      (stock) => ({ type: "reads", stock }),
    );
    if (stock < 1) return "sold-out";
    await work();
    if (strategy.stock === "compare-then-decrement")
      return toAnswer(await trace.request(() => shop.decrement(sale, false), toEvent));
    const checked = strategy.fence === "none" ? undefined : fence;
    const written = await trace.request(
      () => shop.write(sale, stock - 1, checked, strategy.fence === "claimed"),
      (type) => ({ type, stock: stock - 1 }),
    );
    return toAnswer(written);
  }

  /** Sells a unit with the library's inventory. */
  async #sellFromInventory(
    orderId: string,
    fence: Fence | undefined,
    trace: Trace,
  ): Promise<OrderAnswer> {
    const { shop, strategy } = this.#config;
    const operationId = `${shop}/${orderId}`;
    const change = {
      ...{ sku: shop, quantity: 1, operationId },
      fence: strategy.fence === "none" ? undefined : fence,
    };
    const { outcome } = await trace.request(
      () => this.#opened.inventory.decrement(change),
      ({ outcome, replayed, remaining }) => ({
        type: replayed ? "replayed" : outcome === "applied" ? "sold" : "sold-out",
        stock: remaining,
      }),
    );
    return outcome === "applied" ? "sold" : "sold-out";
  }

  /** Spends the time between the read of the stock and the sale, and injects the order's fault. */
  async #work(fault: Delivery["fault"], trace: Trace): Promise<void> {
    await sleep(this.#config.workMillis * (1 + Math.random()));
    if (fault === "freeze" || fault === "kill-before") await this.#injectFault(fault, trace);
  }
}

/** Tries to take a lock until the longest wait is over. */
async function poll(take: () => Promise<boolean>): Promise<"held" | "busy"> {
  const giveUpAt = monotonicNow() + LOCK_WAIT;
  while (!(await take())) {
    if (monotonicNow() > giveUpAt) return "busy";
    await sleep(pollPause());
  }
  return "held";
}

/** Returns what the store has. oversell() refuses a strategy that its store does not have. */
function existing<T>(ways: T | undefined): T {
  if (ways === undefined) throw new TypeError("the store does not have this strategy");
  return ways;
}

function toEvent(type: WriteResult | "sold-out") {
  return { type };
}

function toAnswer(written: WriteResult | "sold-out"): OrderAnswer {
  return written === "replayed" ? "sold" : written;
}

/** `busy`: the lock was not free in time, or an answer of the store did not arrive. The order is delivered again. */
async function orBusy<T>(call: () => Promise<T>): Promise<T | "busy"> {
  try {
    return await call();
  } catch (error) {
    if (hasCode(error, "LOCK_TIMEOUT", "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) return "busy";
    throw error;
  }
}
