import { expect, test } from "vitest";
import { createInventory, type InventoryBackend } from "../../core/inventory/backend.ts";
import type { StockEvent } from "../../core/inventory/events.ts";
import type {
  DecrementResult,
  LedgerEntry,
  Reservation,
  StockLevel,
  StockResult,
} from "../../core/inventory/inventory.ts";

const SOLD = { outcome: "applied", remaining: 1, replayed: false } as const;

/** A backend that is an instance of a class: its methods need their `this`. */
class Shelf implements InventoryBackend {
  readonly address = "a shelf";
  readonly #result: StockResult = SOLD;

  async apply(): Promise<StockResult> {
    return this.#result;
  }
  async applyMany(): Promise<readonly DecrementResult[]> {
    return [{ ...this.#result, operationId: "o" }];
  }
  async get(): Promise<StockLevel | undefined> {
    return { sku: "a", onHand: this.#result.remaining, reserved: 0, sold: 0, supplied: 1 };
  }
  async list(): Promise<readonly StockLevel[]> {
    return this.#result ? [] : [];
  }
  async history(): Promise<readonly LedgerEntry[]> {
    return this.#result ? [] : [];
  }
  async reservations(): Promise<readonly Reservation[]> {
    return this.#result ? [] : [];
  }
  async expire(): Promise<void> {
    this.#result;
  }
  async claim(): Promise<void> {
    this.#result;
  }
}

test("onEvent receives the result of every change, and its own errors cost the caller nothing", async () => {
  const events: StockEvent[] = [];
  const shelf = createInventory(new Shelf(), {
    onEvent(event) {
      events.push(event);
      throw new Error("a fault of the listener");
    },
  });
  const change = { sku: "a", quantity: 1, operationId: "o" };
  expect(await shelf.set(change)).toEqual(SOLD);
  expect(await shelf.decrement(change)).toEqual(SOLD);
  expect(await shelf.reserve({ ...change, expiresIn: 1_000 })).toEqual(SOLD);
  const orders = [{ operationId: "o", quantity: 1 }];
  expect(await shelf.decrementMany({ sku: "a", orders })).toHaveLength(1);
  expect(await shelf.get("a")).toMatchObject({ onHand: 1 });
  expect(await shelf.history("a")).toEqual([]);
  await shelf.expire("a");
  expect(events.map(({ kind }) => kind)).toEqual(["set", "decrement", "reserve", "decrement"]);
  expect(shelf).not.toHaveProperty("within");
});
