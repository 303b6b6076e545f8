import { describe, expect, test } from "vitest";
import type { Wire } from "../support/breakable.ts";
import { known } from "../support/known.ts";
import { within } from "../support/until.ts";
import type { InventorySuite } from "./inventory-suite.ts";

/** Longer than the 10 s of a call on a silent server. */
const LATE = 20_000;

/** Lost answers, errors in their place, dead connections and silent servers. */
export function describeFaults(suite: InventorySuite): void {
  const { stocked, openOverWire, expectConservation } = suite;

  describe.each([
    ["whose answer is lost", (wire: Wire) => wire.loseNextAnswer()],
    ["whose answer a proxy replaces by an error", (wire: Wire) => wire.failNextAnswer()],
    ["over a dead connection", (wire: Wire) => wire.blackhole()],
  ] as const)("a change %s", (_, spoil) => {
    test("is applied once, and its repetition gets the first result", async () => {
      const over = await openOverWire();
      if (!over) return;
      const { inventory, wire } = over;
      const sku = await stocked(10);
      const change = { sku, quantity: 1 };
      const changes = [
        () => inventory.decrement({ ...change, operationId: `${sku}/decrement` }),
        () => inventory.restock({ ...change, operationId: `${sku}/restock` }),
        () => inventory.reserve({ ...change, operationId: `${sku}/reserve`, expiresIn: 600_000 }),
      ];
      for (const call of changes) {
        // The client has a connection, which has answered just now.
        await inventory.get(sku);
        spoil(wire);
        const { outcome, remaining } = await within(3 * LATE, known(call));
        expect(outcome).toBe("applied");
        expect(await known(call)).toMatchObject({ outcome, remaining, replayed: true });
      }
      expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 9, sold: 1, reserved: 1 });
      await expectConservation(sku);
    });
  });

  test("a change on a silent server ends in time, and is applied once when the server answers again", async () => {
    const over = await openOverWire();
    if (!over) return;
    const { inventory, wire } = over;
    const sku = await stocked(10);
    const call = () => inventory.decrement({ sku, quantity: 1, operationId: `${sku}/1` });
    await inventory.get(sku);
    wire.cut();
    const code = within(LATE, call()).then(
      () => undefined,
      (error) => error.code,
    );
    expect(["STORE_UNAVAILABLE", "UNKNOWN_OUTCOME"]).toContain(await code);
    wire.mend();
    expect(await known(call)).toMatchObject({ outcome: "applied", remaining: 9 });
    expect(await suite.inventory.get(sku)).toMatchObject({ onHand: 9, sold: 1 });
    await expectConservation(sku);
  });
}
