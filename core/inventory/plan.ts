import { backoff } from "../lock/retry.ts";
import type { Millis } from "../lock/time.ts";
import type { DecrementResult, StockOutcome } from "./inventory.ts";
import { type Operation, payloadHash, sameBytes } from "./operation.ts";

/** The result that the ledger holds for an operation id. */
export interface PriorResult {
  readonly hash: Uint8Array;
  readonly outcome: StockOutcome;
  readonly remaining: number;
}

/** The effect of one operation on the stock. */
export interface Transition<S> {
  readonly outcome: StockOutcome;

  /** The units that the operation moves or asks for. */
  readonly quantity: number;
  readonly stock: S;
}

/** An operation whose result is decided but not written yet. */
export interface PlannedOperation extends PriorResult {
  readonly operation: Operation;
  readonly quantity: number;
}

export interface Plan<S> {
  readonly results: readonly DecrementResult[];

  /** The operations that are new and have to be written. */
  readonly planned: readonly PlannedOperation[];

  /** The stock after all operations. */
  readonly stock: S;
  readonly isShort: boolean;
}

/** Plans each operation in turn. The second use of an id within the batch is a replay too. */
export function planBatch<S extends { readonly onHand: number }>(
  operations: readonly Operation[],
  start: { readonly stock: S; readonly recorded: ReadonlyMap<string, PriorResult> },
  transition: (stock: S, operation: Operation) => Transition<S>,
): Plan<S> {
  const known = new Map(start.recorded);
  const planned: PlannedOperation[] = [];
  let { stock } = start;
  const results = operations.map((operation): DecrementResult => {
    const { operationId } = operation;
    const hash = payloadHash(operation);
    const prior = known.get(operationId);
    if (prior && !sameBytes(prior.hash, hash)) {
      return { operationId, outcome: "conflict", remaining: stock.onHand, replayed: false };
    }
    if (prior) {
      return { operationId, outcome: prior.outcome, remaining: prior.remaining, replayed: true };
    }
    const { outcome, quantity, stock: next } = transition(stock, operation);
    const remaining = next.onHand;
    stock = next;
    known.set(operationId, { hash, outcome, remaining });
    planned.push({ operation, hash, outcome, quantity, remaining });
    return { operationId, outcome, remaining, replayed: false };
  });
  const isShort = planned.some(({ outcome }) => outcome === "sold-out");
  return { results, planned, stock, isShort };
}

/**
 * The pause before a plan that another client's change has contradicted is made anew.
 *
 * The pauses of up to 2, 4, … 32 round trips keep clients that were refused from refusing each other. They do not help
 * against a client that is never refused: its cache is always the newest.
 */
export function conflictPause(conflicts: number, roundTrip: Millis): Millis {
  const max = 32 * roundTrip;
  return backoff(conflicts, { base: roundTrip, factor: 2, max, jitter: "full" });
}
