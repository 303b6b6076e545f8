import { randomUUID } from "node:crypto";
import { sleep } from "../../core/lock/abort.ts";
import { hasCode } from "../../core/lock/errors.ts";
import { Notifier } from "../../core/lock/notifier.ts";
import { backoff, retry } from "../../core/lock/retry.ts";
import { LONGEST_CALL } from "../../core/lock/time.ts";
import type { AnyStore } from "../../infra/open.ts";
import type { Delivery, Fault, HandledOrder, Worker, WorkerConfig } from "./messages.ts";
import type { Handling, Observations, OrderRecord } from "./observations.ts";
import { openShop } from "./open-shop.ts";
import { type Strategy, stockKeeper } from "./strategy.ts";
import { beliefOf, monotonicNow, type TraceEvent } from "./trace.ts";

export interface SaleOptions extends Omit<WorkerConfig, "shop" | "strategy"> {
  readonly opened: AnyStore;

  /** The store of the locks: `opened`, or another one. */
  readonly lockedBy: AnyStore;
  readonly workers: readonly Worker[];
  readonly deliveries: readonly Delivery[];
  readonly stock: number;
  readonly onProgress: (progress: SaleProgress) => void;
}

export interface SaleProgress {
  /** The number of orders with an answer. */
  readonly answered: number;

  /** What happens now. */
  readonly now: string;
}

/** Sells the stock once with one strategy. Resolves to the observations. */
export async function runSale(sale: SaleOptions, strategy: Strategy): Promise<Observations> {
  const { store, locks, stock, ttlMillis, pauseMillis, workMillis, answersAt } = sale;
  const name = `oversell-${randomUUID()}`;
  const shop = openShop(sale.opened, name, sale.lockedBy);
  await persist(() => shop.open(stock, stockKeeper(strategy)));
  try {
    const times = { ttlMillis, pauseMillis, workMillis, answersAt };
    const config = { store, locks, shop: name, strategy, ...times };
    await Promise.all(sale.workers.map((worker) => worker.configure(config)));
    const queue = new OrderQueue(sale, strategy);
    await Promise.all(sale.workers.map((worker, number) => queue.deliverTo(worker, number)));
    const totals = await persist(() => shop.totals());
    return { strategy, stock, ttlMillis, totals, ...queue.observations() };
  } finally {
    await persist(() => shop.close());
  }
}

/** Repeats an idempotent call for a while, if the store does not answer. */
export async function persist<T>(call: () => Promise<T>): Promise<T> {
  const giveUpAt = monotonicNow() + LONGEST_CALL;
  return retry(call, (error, count) =>
    monotonicNow() < giveUpAt && hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")
      ? backoff(count)
      : undefined,
  );
}

/** The maximum number of deliveries of an order. More deliveries prove that the strategy makes no progress. */
const MAX_DELIVERIES = 100;

/** The longest freeze, in multiples of the pause, when no other process sells anything meanwhile. */
const MAX_FREEZE = 20;

interface QueuedDelivery extends Delivery {
  /** Earlier deliveries of the order. */
  readonly redeliveries: number;
}

interface FrozenHolder {
  readonly since: number;
  readonly overtaken: Notifier;
}

/** The part of the orders that could be sold that have begun before a due freeze has. The rest waits for the freeze. */
const BEGUN_BEFORE_FREEZE = 0.9;

/** The effect of a fault on a worker, for the progress. */
const HAPPENS: Readonly<Record<Fault, string>> = {
  slow: "waits for a slow service",
  freeze: "will be frozen",
  "kill-before": "will be killed",
  "kill-after": "will be killed",
};

/** The event of an order's trace that shows that its fault has happened. */
const SHOWN_BY: Readonly<Record<Fault, TraceEvent["type"]>> = {
  slow: "identified",
  freeze: "freezes",
  "kill-before": "dies",
  "kill-after": "dies",
};

/** The queue of the workers, which redelivers unanswered orders. */
class OrderQueue {
  readonly #waiting: QueuedDelivery[];
  readonly #onProgress: SaleOptions["onProgress"];
  readonly #pauseMillis: number;

  readonly #isLocked: boolean;

  /** Whether a frozen process keeps all others from selling. */
  readonly #freezesAll: boolean;
  readonly #orderCount: number;
  readonly #mostBeforeFreeze: number;
  readonly #startedAt = monotonicNow();
  readonly #firstAt = new Map<string, number>();
  readonly #orders = new Map<string, OrderRecord>();
  readonly #handlings: Handling[] = [];
  readonly #frozen = new Set<FrozenHolder>();
  readonly #toFreeze = new Set<QueuedDelivery>();
  #now = "";
  #busy = 0;

  constructor(sale: SaleOptions, { lock, stock }: Strategy) {
    const { deliveries, onProgress, pauseMillis } = sale;
    this.#waiting = deliveries.map((delivery) => ({ ...delivery, redeliveries: 0 }));
    this.#onProgress = onProgress;
    this.#pauseMillis = pauseMillis;
    this.#isLocked = lock !== "none";
    this.#freezesAll = stock === "select-for-update";
    this.#orderCount = new Set(deliveries.map(({ orderId }) => orderId)).size;
    this.#mostBeforeFreeze = BEGUN_BEFORE_FREEZE * Math.min(sale.stock, this.#orderCount);
  }

  async deliverTo(worker: Worker, number: number): Promise<void> {
    for (;;) {
      const delivery = this.#next();
      if (delivery === undefined) {
        if (this.#busy === 0) return;
        await sleep(5);
        continue;
      }
      const { orderId, fault, redeliveries } = delivery;
      if (redeliveries === MAX_DELIVERIES) {
        throw new Error(`${orderId} has no answer after ${MAX_DELIVERIES} deliveries`);
      }
      this.#busy += 1;
      this.#firstAt.set(orderId, this.#firstAt.get(orderId) ?? this.#elapsed());
      if (fault) this.#progress(`process ${number + 1} ${HAPPENS[fault]}`);
      if (fault === "freeze") this.#toFreeze.add(delivery);
      try {
        const handled = await worker.handle(delivery, this.#startedAt, () => {
          this.#toFreeze.delete(delivery);
          return this.#freezeEnd(number);
        });
        this.#record(delivery, handled, number);
      } finally {
        this.#toFreeze.delete(delivery);
        this.#busy -= 1;
      }
    }
  }

  observations(): Pick<Observations, "orders" | "handlings" | "stuck" | "millis"> {
    const orders = [...this.#orders.values()];
    const stuck = this.#orderCount - orders.length;
    return { orders, handlings: this.#handlings, stuck, millis: this.#elapsed() };
  }

  /**
   * Takes the next delivery. The last part of the orders waits for each freeze that is due: while one process starts slowly,
   * the others would sell everything, and nobody would overtake it.
   */
  #next(): QueuedDelivery | undefined {
    const [next] = this.#waiting;
    const isNew = next && !this.#firstAt.has(next.orderId);
    if (isNew && this.#toFreeze.size > 0 && this.#firstAt.size >= this.#mostBeforeFreeze)
      return undefined;
    return this.#waiting.shift();
  }

  #elapsed(): number {
    return monotonicNow() - this.#startedAt;
  }

  #progress(now: string): void {
    this.#now = now;
    this.#onProgress({ answered: this.#orders.size, now });
  }

  /**
   * Resolves after the pause, and not before an order that another process began meanwhile is answered: on a busy machine
   * the pause alone may be over before another process has the lock. Without a lock, the process stays frozen until the
   * stock is sold out. The pause alone counts while the stock's row is locked, or a lock is held for ever: no other order
   * is answered then.
   */
  async #freezeEnd(worker: number): Promise<void> {
    this.#progress(`process ${worker + 1} is frozen`);
    const holder = { since: this.#elapsed(), overtaken: new Notifier() };
    this.#frozen.add(holder);
    const span = this.#freezesAll ? 0 : MAX_FREEZE * this.#pauseMillis;
    await Promise.all([sleep(this.#pauseMillis), holder.overtaken.wait({ span })]);
    this.#frozen.delete(holder);
    this.#progress(`process ${worker + 1} wakes`);
  }

  #record(
    { orderId, fault, redeliveries }: QueuedDelivery,
    { answer, trace }: HandledOrder,
    worker: number,
  ): void {
    this.#handlings.push({ worker, orderId, fault, answer, trace });
    if (answer === "refused") this.#progress(`process ${worker + 1} is late and refused`);
    if (answer === "killed") this.#progress(`process ${worker + 1} was killed`);
    if (answer === "stuck") {
      this.#progress(`process ${worker + 1} finds a lock that is held for ever`);
      this.#waiting.length = 0;
      for (const { overtaken } of this.#frozen) overtaken.notify();
      return;
    }
    if (answer !== "sold" && answer !== "sold-out") {
      const isDue = fault && !trace.some(({ type }) => type === SHOWN_BY[fault]);
      const next = { orderId, fault: isDue ? fault : undefined, redeliveries: redeliveries + 1 };
      // A fault that has not happened yet would have no lock to break once the stock is sold out.
      if (isDue) this.#waiting.unshift(next);
      else this.#waiting.push(next);
      return;
    }
    const belief = beliefOf(trace);
    const beganAt = belief?.from ?? trace[0]?.at ?? 0;
    const isLast = this.#waiting.length === 0 && this.#busy - 1 <= this.#frozen.size;
    for (const { since, overtaken } of this.#frozen) {
      if (beganAt > since && (this.#isLocked || answer === "sold-out" || isLast)) {
        overtaken.notify();
      }
    }
    if (!this.#orders.has(orderId)) {
      const millis = this.#elapsed() - (this.#firstAt.get(orderId) ?? 0);
      this.#orders.set(orderId, { orderId, answer, millis });
      this.#progress(this.#now);
    }
  }
}
