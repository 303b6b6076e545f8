import { randomUUID } from "node:crypto";
import { sleep } from "../../core/lock/abort.ts";
import type { Opened } from "../../infra/open.ts";
import type { Handled, Worker } from "./crew.ts";
import type { Delivery } from "./messages.ts";
import { openShop } from "./open-shop.ts";
import type { Observations, OrderRecord, Stay } from "./report.ts";
import { keptBy, type Strategy } from "./strategy.ts";

export interface Sale {
  readonly opened: Opened;
  readonly store: string;
  readonly workers: readonly Worker[];
  readonly deliveries: readonly Delivery[];
  readonly stock: number;
  readonly ttlMillis: number;
  readonly pauseMillis: number;
  readonly onAnswer: () => void;
}

/** Sells the stock once by one strategy, with real processes, and resolves to all that was seen. */
export async function runSale(sale: Sale, strategy: Strategy): Promise<Observations> {
  const { store, stock, ttlMillis, pauseMillis } = sale;
  const name = `oversell-${randomUUID()}`;
  const shop = openShop(sale.opened, name);
  await shop.open(stock, keptBy(strategy));
  try {
    const shift = { store, shop: name, strategy, ttlMillis, pauseMillis };
    await Promise.all(sale.workers.map((worker) => worker.begin(shift)));
    const counter = new Counter(sale);
    const startedAt = performance.now();
    await Promise.all(sale.workers.map((worker, number) => counter.serve(worker, number)));
    const millis = performance.now() - startedAt;
    return { strategy, stock, books: await shop.books(), millis, ...counter.seen() };
  } finally {
    await shop.close();
  }
}

/** How often one order may come again before something is wrong with the strategy's liveness. */
const MOST_DELIVERIES = 100;

interface Waiting extends Delivery {
  /** How often it was delivered before. */
  readonly times: number;
}

/** The queue in front of the workers: what was not answered comes again. */
class Counter {
  readonly #waiting: Waiting[];
  readonly #onAnswer: () => void;
  readonly #firstAt = new Map<string, number>();
  readonly #orders = new Map<string, OrderRecord>();
  readonly #stays: Stay[] = [];
  #refused = 0;
  #busy = 0;

  constructor({ deliveries, onAnswer }: Sale) {
    this.#waiting = deliveries.map((delivery) => ({ ...delivery, times: 0 }));
    this.#onAnswer = onAnswer;
  }

  async serve(worker: Worker, number: number): Promise<void> {
    for (;;) {
      const delivery = this.#waiting.shift();
      if (delivery === undefined) {
        if (this.#busy === 0) return;
        await sleep(5);
        continue;
      }
      if (delivery.times === MOST_DELIVERIES) {
        throw new Error(`${delivery.orderId} was not answered in ${MOST_DELIVERIES} deliveries`);
      }
      this.#busy += 1;
      this.#firstAt.set(delivery.orderId, this.#firstAt.get(delivery.orderId) ?? performance.now());
      try {
        const handled = await worker.handle(delivery);
        this.#note(delivery, handled, number);
      } finally {
        this.#busy -= 1;
      }
    }
  }

  seen(): Pick<Observations, "orders" | "stays" | "refused"> {
    return { orders: [...this.#orders.values()], stays: this.#stays, refused: this.#refused };
  }

  #note({ orderId, fault, times }: Waiting, { answer, section }: Handled, worker: number): void {
    const fate = answer === "refused" ? answer : fault;
    if (section) this.#stays.push({ ...section, worker, fate });
    if (answer === "refused") this.#refused += 1;
    if (answer !== "sold" && answer !== "sold-out") {
      this.#waiting.push({ orderId, fault: undefined, times: times + 1 });
    } else if (!this.#orders.has(orderId)) {
      const millis = performance.now() - (this.#firstAt.get(orderId) ?? 0);
      this.#orders.set(orderId, { orderId, answer, millis });
      this.#onAnswer();
    }
  }
}
