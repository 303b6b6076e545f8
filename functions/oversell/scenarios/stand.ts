import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stockLock } from "../../../core/inventory/inventory.ts";
import { hasCode } from "../../../core/lock/errors.ts";
import type { Lock, LockStore } from "../../../core/lock/lock.ts";
import { type Opened, open } from "../../../infra/open.ts";
import { openShop } from "../open-shop.ts";
import type { Shop } from "../shop.ts";
import type { VariantReport } from "./report.ts";

/** Where the stock of a scenario is kept. */
export const RESOURCE = "an embedded SQLite database, which survives what happens to the servers";

/** `by-hand`: read, look, write the difference. `fenced`: the library's inventory, under the holder's fence. */
export type Guard = "by-hand" | "fenced";

/** Longer than any scenario takes: nobody's lock expires by itself. The second one asks for a while. */
const HELD = { ttl: 45_000, renew: false, wait: 2_000 };

/** Opens a stand on a database of its own, which is thrown away afterwards. */
export async function withStand<T>(
  guard: Guard,
  stock: number,
  work: (stand: Stand) => Promise<T>,
): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-scenario-"));
  const opened = await open(`sqlite:${join(folder, "shop.db")}`);
  try {
    const stand = new Stand(opened, guard);
    await stand.open(stock);
    return await work(stand);
  } finally {
    await opened.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** One product, and those who hold its lock. */
export class Stand {
  readonly #name = `teapot-${randomUUID()}`;
  readonly #opened: Opened;
  readonly #shop: Shop;
  readonly #guard: Guard;
  readonly #holders: Lock[] = [];
  #stock = 0;
  #refused = 0;

  constructor(opened: Opened, guard: Guard) {
    this.#opened = opened;
    this.#shop = openShop(opened, this.#name);
    this.#guard = guard;
  }

  async open(stock: number): Promise<void> {
    this.#stock = stock;
    await this.#shop.open(stock, this.#guard === "fenced" ? "by-inventory" : "by-hand");
  }

  /** The name of the lock that orders the work on the product. */
  get lock(): string {
    return stockLock(this.#name);
  }

  /** Somebody takes the lock, if the store gives it. */
  async enter(store: LockStore): Promise<void> {
    try {
      this.#holders.push(await store.lock(this.lock, HELD));
    } catch (error) {
      if (!hasCode(error, "LOCK_TIMEOUT", "STORE_UNAVAILABLE")) throw error;
    }
  }

  /** All holders look at the stock; then each of them, the last one first, sells what it saw. */
  async sell(): Promise<Pick<VariantReport, "holders" | "sold" | "oversold" | "refused">> {
    const holders = this.#holders.filter(believes).length;
    const seen = await Promise.all(this.#holders.map(() => this.#look()));
    for (const [i, lock] of [...this.#holders.entries()].reverse()) {
      for (let left = (seen[i] ?? 0) - 1; left >= 0; left -= 1) {
        await this.#sellOne(lock, `order-${i}-${left}`, left);
      }
    }
    const sold = (await this.#shop.books()).sales.length;
    return { holders, sold, oversold: Math.max(0, sold - this.#stock), refused: this.#refused };
  }

  async #look(): Promise<number> {
    if (this.#guard === "by-hand") return this.#shop.readStock();
    return (await this.#opened.inventory?.get(this.#name))?.onHand ?? 0;
  }

  async #sellOne({ fence }: Lock, orderId: string, left: number): Promise<void> {
    if (this.#guard === "by-hand") {
      await this.#shop.write({ orderId, saleId: orderId }, left);
      return;
    }
    const operationId = `${this.#name}/${orderId}`;
    try {
      await this.#opened.inventory?.decrement({
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

function believes(lock: Lock): boolean {
  try {
    lock.assertHeld();
    return true;
  } catch {
    return false;
  }
}
