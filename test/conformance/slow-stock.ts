import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Inventory } from "../../core/inventory/inventory.ts";

/** The article of the suite. */
export const sku = "teapot";

export interface SlowStock {
  readonly stock: Inventory;

  /** Returns how many expired reservations are left. */
  left(): number;
}

/**
 * Tests what stock guarantees on a slow server, on a virtual clock. `stockOn` opens stock of 9 units on hand whose server
 * takes `span` milliseconds for each answer, accepts every write, and has so many expired reservations.
 */
export function describeSlowStock(
  name: string,
  stockOn: (span: number, expired?: number) => SlowStock,
  backlog: number,
): void {
  describe(`stock on a slow ${name}`, () => {
    beforeEach(() => {
      vi.useFakeTimers();
    });

    afterEach(() => {
      vi.useRealTimers();
    });

    test("changes of one sku keep their order, and their wait for each other takes none of their own time", async () => {
      const { stock } = stockOn(1_500);
      const ends: unknown[] = [];
      const changes = Array.from({ length: 7 }, async (_, i) => {
        const change = { sku, quantity: 1, operationId: `${i}` };
        await stock.restock(change).then(
          ({ remaining }) => ends.push(remaining),
          (error) => ends.push(error),
        );
      });
      await vi.advanceTimersByTimeAsync(20_000);
      await Promise.all(changes);
      const tooLate = {
        code: "STORE_UNAVAILABLE",
        message: expect.stringContaining(`this client's earlier changes of "${sku}" took 10 s`),
      };
      expect(ends).toEqual([10, 11, 12, 13, 14, expect.objectContaining(tooLate), 15]);
    });

    test("a backlog of expired reservations is released however long that takes", async () => {
      const { stock, left } = stockOn(500, backlog);
      const expiring = stock.expire(sku);
      await vi.advanceTimersByTimeAsync(30_000);
      await expiring;
      expect(left()).toBe(0);
    });
  });
}
