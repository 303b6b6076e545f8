import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { stockLock } from "../../../core/inventory/inventory.ts";
import { hasCode } from "../../../core/lock/errors.ts";
import type { Lock, LockStore } from "../../../core/lock/lock.ts";
import { isHeld } from "../../../core/lock/lock-handle.ts";
import type { SqlStore } from "../../../core/stores/sql/store.ts";
import { open } from "../../../infra/open.ts";
import { temporaryFolder } from "../../../infra/servers/reap.ts";
import type { Shop } from "../shop.ts";
import { sqlShop } from "../sql-shop.ts";
import type { VariantReport } from "./report.ts";

/** The store of a scenario's stock. */
export const RESOURCE = "an embedded SQLite database, which the scenario does not break";

/** `by-hand`: read the stock, write the difference. `fenced`: the library's inventory, with the holder's fence. */
export type Guard = "by-hand" | "fenced";

/** A ttl longer than any scenario, so that no lock expires by itself. A busy machine takes seconds for five servers. */
const LOCK_OPTIONS = { ttl: 45_000, renew: false, wait: 5_000 };

/** Opens a shop on a new database, calls `work`, and deletes the database. */
export async function withScenarioShop<T>(
  guard: Guard,
  stock: number,
  work: (shop: ScenarioShop) => Promise<T>,
): Promise<T> {
  await using folder = await temporaryFolder("scenario");
  await using opened = await open(`sqlite:${join(folder.path, "shop.db")}`);
  const shop = new ScenarioShop(opened, guard);
  await shop.open(stock);
  return await work(shop);
}

/** One product and the holders of its lock. */
export class ScenarioShop {
  readonly #name = `teapot-${randomUUID()}`;
  readonly #opened: SqlStore;
  readonly #shop: Shop;
  readonly #guard: Guard;
  readonly #holders: Lock[] = [];
  #stock = 0;
  #refused = 0;

  constructor(opened: SqlStore, guard: Guard) {
    this.#opened = opened;
    this.#shop = sqlShop(opened.database, opened.inventory, this.#name);
    this.#guard = guard;
  }

  async open(stock: number): Promise<void> {
    this.#stock = stock;
    await this.#shop.open(stock, this.#guard === "fenced" ? "by-inventory" : "by-hand");
  }

  /** The name of the product's lock. */
  get lock(): string {
    return stockLock(this.#name);
  }

  /** Adds a holder if the store grants the lock. */
  async acquire(store: LockStore): Promise<void> {
    try {
      this.#holders.push(await store.lock(this.lock, LOCK_OPTIONS));
    } catch (error) {
      if (!hasCode(error, "LOCK_TIMEOUT", "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) throw error;
    }
  }

  /** Lets all holders read the stock, then lets each of them, the last one first, sell what it read. */
  async sell(): Promise<Pick<VariantReport, "holders" | "sold" | "oversold" | "refused">> {
    const holders = this.#holders.filter(isHeld).length;
    const read = await Promise.all(this.#holders.map(() => this.#readStock()));
    for (const [i, lock] of [...this.#holders.entries()].reverse()) {
      for (let left = (read[i] ?? 0) - 1; left >= 0; left -= 1) {
        await this.#sellOne(lock, `order-${i}-${left}`, left);
      }
    }
    const sold = (await this.#shop.totals()).sales.length;
    return { holders, sold, oversold: Math.max(0, sold - this.#stock), refused: this.#refused };
  }

  async #readStock(): Promise<number> {
    if (this.#guard === "by-hand") return this.#shop.readStock();
    return (await this.#opened.inventory.get(this.#name))?.onHand ?? 0;
  }

  async #sellOne({ fence }: Lock, orderId: string, left: number): Promise<void> {
    if (this.#guard === "by-hand") {
      await this.#shop.write({ orderId, saleId: orderId }, left);
      return;
    }
    const operationId = `${this.#name}/${orderId}`;
    try {
      await this.#opened.inventory.decrement({
        sku: this.#name,
        quantity: 1,
        operationId,
        fence,
      });
    } catch (error) {
      if (!hasCode(error, "FENCED_OUT")) throw error;
      this.#refused += 1;
    }
  }
}
