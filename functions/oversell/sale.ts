import { randomUUID } from "node:crypto";
import { sleep } from "../../core/lock/abort.ts";
import { Notifier } from "../../core/lock/notifier.ts";
import type { AnyStore } from "../../infra/open.ts";
import { type Delivery, monotonicNow } from "./messages.ts";
import { openShop } from "./open-shop.ts";
import type { HoldInterval, Observations, OrderRecord } from "./report.ts";
import { type Strategy, stockKeeper } from "./strategy.ts";
import type { Handled, WorkerProcess } from "./worker-process.ts";

export interface SaleOptions {
  readonly opened: AnyStore;
  readonly store: string;
  readonly workers: readonly WorkerProcess[];
  readonly deliveries: readonly Delivery[];
  readonly stock: number;
  readonly ttlMillis: number;
  readonly pauseMillis: number;
  readonly onAnswer: () => void;
}

/** Sells the stock once with one strategy, in real processes. Resolves to the observations. */
export async function runSale(sale: SaleOptions, strategy: Strategy): Promise<Observations> {
  const { store, stock, ttlMillis, pauseMillis } = sale;
  const name = `oversell-${randomUUID()}`;
  const shop = openShop(sale.opened, name);
  await shop.open(stock, stockKeeper(strategy));
  try {
    const config = { store, shop: name, strategy, ttlMillis, pauseMillis };
    await Promise.all(sale.workers.map((worker) => worker.configure(config)));
    const queue = new OrderQueue(sale);
    const startedAt = performance.now();
    await Promise.all(sale.workers.map((worker, number) => queue.deliverTo(worker, number)));
    const millis = performance.now() - startedAt;
    return { strategy, stock, totals: await shop.totals(), millis, ...queue.observations() };
  } finally {
    await shop.close();
  }
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

/** The queue of the workers, which redelivers unanswered orders. */
class OrderQueue {
  readonly #waiting: QueuedDelivery[];
  readonly #onAnswer: () => void;
  readonly #pauseMillis: number;
  readonly #firstAt = new Map<string, number>();
  readonly #orders = new Map<string, OrderRecord>();
  readonly #holds: HoldInterval[] = [];
  readonly #frozen = new Set<FrozenHolder>();
  #refused = 0;
  #busy = 0;

  constructor({ deliveries, onAnswer, pauseMillis }: SaleOptions) {
    this.#waiting = deliveries.map((delivery) => ({ ...delivery, redeliveries: 0 }));
    this.#onAnswer = onAnswer;
    this.#pauseMillis = pauseMillis;
  }

  async deliverTo(worker: WorkerProcess, number: number): Promise<void> {
    for (;;) {
      const delivery = this.#waiting.shift();
      if (delivery === undefined) {
        if (this.#busy === 0) return;
        await sleep(5);
        continue;
      }
      if (delivery.redeliveries === MAX_DELIVERIES) {
        throw new Error(`${delivery.orderId} has no answer after ${MAX_DELIVERIES} deliveries`);
      }
      this.#busy += 1;
      this.#firstAt.set(delivery.orderId, this.#firstAt.get(delivery.orderId) ?? performance.now());
      try {
        const handled = await worker.handle(delivery, () => this.#freezeEnd());
        this.#record(delivery, handled, number);
      } finally {
        this.#busy -= 1;
      }
    }
  }

  observations(): Pick<Observations, "orders" | "holds" | "refused"> {
    return { orders: [...this.#orders.values()], holds: this.#holds, refused: this.#refused };
  }

  /**
   * Resolves after the pause, and not before an order that another process began meanwhile is answered: on a busy machine
   * the pause alone may be over before another process has the lock.
   */
  async #freezeEnd(): Promise<void> {
    const holder = { since: monotonicNow(), overtaken: new Notifier() };
    this.#frozen.add(holder);
    const isOvertaken = holder.overtaken.wait({ span: MAX_FREEZE * this.#pauseMillis });
    await Promise.all([sleep(this.#pauseMillis), isOvertaken]);
    this.#frozen.delete(holder);
  }

  #record(
    { orderId, fault, redeliveries }: QueuedDelivery,
    { answer, section }: Handled,
    worker: number,
  ): void {
    const outcome = answer === "refused" ? answer : fault;
    if (section) this.#holds.push({ ...section, worker, outcome });
    if (answer === "refused") this.#refused += 1;
    if (answer !== "sold" && answer !== "sold-out") {
      this.#waiting.push({ orderId, fault: undefined, redeliveries: redeliveries + 1 });
      return;
    }
    for (const { since, overtaken } of this.#frozen) {
      if (section === undefined || section.from > since) overtaken.notify();
    }
    if (!this.#orders.has(orderId)) {
      const millis = performance.now() - (this.#firstAt.get(orderId) ?? 0);
      this.#orders.set(orderId, { orderId, answer, millis });
      this.#onAnswer();
    }
  }
}
