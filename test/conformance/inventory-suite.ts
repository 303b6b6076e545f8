import { afterAll, beforeAll, expect, onTestFinished } from "vitest";
import { type Inventory, stockLock } from "../../core/inventory/inventory.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { Lock, LockStore } from "../../core/lock/lock.ts";
import type { Wire } from "../support/breakable.ts";
import { known } from "../support/known.ts";
import { pause, until } from "../support/until.ts";

/** An inventory as the conformance suite takes it. */
export interface InventoryUnderTest {
  /** Opens another client of the same inventory. */
  open(): { readonly inventory: Inventory; readonly locks: LockStore };

  /** Opens another client, over a wire that can be broken; undefined for stores without a connection. */
  readonly openOverWire:
    | (() => Promise<ReturnType<InventoryUnderTest["open"]> & { readonly wire: Wire }>)
    | undefined;

  /** Whether a fence is accepted only while its lock is held. */
  readonly fencedByLock: boolean;
  close(): Promise<void>;
}

let skus = 0;

/** The inventory under test, and one client of it. */
export class InventorySuite {
  #opened: (InventoryUnderTest & ReturnType<InventoryUnderTest["open"]>) | undefined;

  /** Call it within a `describe`. */
  constructor(make: () => Promise<InventoryUnderTest>) {
    beforeAll(async () => {
      const underTest = await make();
      this.#opened = { ...underTest, ...underTest.open() };
    });
    afterAll(() => this.#opened?.close());
  }

  get underTest(): InventoryUnderTest {
    return this.#get();
  }

  get inventory(): Inventory {
    return this.#get().inventory;
  }

  get locks(): LockStore {
    return this.#get().locks;
  }

  #get() {
    if (!this.#opened)
      throw new Error("the inventory is opened before the first test, not earlier");
    return this.#opened;
  }

  readonly openOverWire = async () => {
    const over = await this.underTest.openOverWire?.();
    if (over) onTestFinished(() => over.locks.close());
    else expect(["sqlite", "durable-objects", "d1"]).toContain(this.locks.traits.name);
    return over;
  };

  /** Makes a sku with so many units. */
  readonly stocked = async (quantity: number): Promise<string> => {
    skus += 1;
    const sku = `sku-${process.pid}-${skus}`;
    await this.inventory.set({ sku, quantity, operationId: `${sku}/set` });
    return sku;
  };

  readonly holding = (sku: string): Promise<Lock> =>
    this.locks.lock(stockLock(sku), { ttl: 20_000, wait: 20_000 });

  /** Releases the lock for the next holder; returns the fence that is late now, and the next holder's lock. */
  readonly succeeded = async (
    lock: Lock,
  ): Promise<{ readonly late: Fence; readonly next: Lock }> => {
    await lock.unlock();
    return {
      late: lock.fence,
      next: await this.locks.lock(lock.name, { ttl: 20_000, wait: 20_000 }),
    };
  };

  /** Resolves when reservations for `expiresIn` that exist already have expired: when a later one has. */
  readonly untilExpired = async (expiresIn: number): Promise<void> => {
    const sku = await this.stocked(1);
    const operationId = `${sku}/probe`;
    await known(() => this.inventory.reserve({ sku, quantity: 1, operationId, expiresIn }));
    await until(async () => {
      await this.inventory.expire(sku);
      return (await this.inventory.get(sku))?.reserved === 0;
    });
    // etcd ends leases of the same second in any order.
    await pause(100);
  };

  /** Expects that the books add up, entry by entry, and contain no operation twice. */
  readonly expectConservation = async (sku: string): Promise<void> => {
    const stock = await this.inventory.get(sku);
    const entries = [...(await this.inventory.history(sku, { limit: 10_000 }))].reverse();
    expect(stock).toBeDefined();
    if (!stock) return;
    expect(stock.supplied).toBe(stock.onHand + stock.reserved + stock.sold);
    let onHand = 0;
    let sold = 0;
    const reserved = new Map<string, number>();
    for (const { kind, outcome, quantity, remaining, operationId, reservation = "" } of entries) {
      if (outcome === "applied") {
        if (kind === "set") onHand = quantity;
        if (kind === "restock") onHand += quantity;
        if (kind === "decrement" || kind === "reserve") onHand -= quantity;
        if (kind === "decrement" || kind === "confirm") sold += quantity;
        if (kind === "cancel") onHand += quantity;
        if (kind === "reserve") reserved.set(operationId ?? "", quantity);
        if (kind === "expire") onHand += quantity;
        if (["confirm", "cancel", "expire"].includes(kind)) reserved.delete(reservation);
      }
      expect(onHand).toBeGreaterThanOrEqual(0);
      // Reservations that expire together are released in one change.
      if (kind !== "expire") expect(remaining).toBe(onHand);
    }
    expect(stock).toMatchObject({ onHand, sold });
    expect(stock.reserved).toBe([...reserved.values()].reduce((sum, units) => sum + units, 0));
    const ids = entries.flatMap(({ operationId }) => operationId ?? []);
    expect(new Set(ids).size).toBe(ids.length);
  };
}
