import { unknownSku } from "../../../inventory/inventory.ts";
import type { OperationBatch, OperationKind } from "../../../inventory/operation.ts";
import { type Plan, planBatch } from "../../../inventory/plan.ts";
import { transition } from "../../../inventory/transitions.ts";
import { checkFenceState } from "./fence.ts";
import type { Snapshot } from "./snapshot.ts";
import { NO_STOCK, type StoredStock } from "./transaction.ts";

/** By how much an applied operation changes the number of reservations. */
const RESERVATIONS: Readonly<Partial<Record<OperationKind, number>>> = {
  reserve: 1,
  confirm: -1,
  cancel: -1,
};

/**
 * Plans a batch on a snapshot. A recorded operation keeps its result; a new one throws a FencedOutError if the
 * fence is late.
 */
export function plan(
  { sku, fence, operations }: OperationBatch,
  snapshot: Snapshot,
): Plan<StoredStock> {
  const { stock, recorded, isSetAside, lease } = snapshot;
  if (operations.some(({ operationId }) => !recorded.has(operationId))) {
    if (fence) checkFenceState(fence, snapshot.fence);
    if (!stock && operations[0]?.kind !== "set") throw unknownSku(sku);
  }
  const start = { stock: stock ?? NO_STOCK, recorded };
  return planBatch(operations, start, (before, operation) => {
    const made = recorded.get(operation.reservation ?? "");
    const reservation = { made, isSetAside, isOpen: lease !== undefined };
    const effect = transition(before, operation, reservation);
    const more = effect.outcome === "applied" ? (RESERVATIONS[operation.kind] ?? 0) : 0;
    return { ...effect, stock: { ...effect.stock, reservations: before.reservations + more } };
  });
}
