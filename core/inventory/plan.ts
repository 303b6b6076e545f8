import type { OrderAnswer, Outcome } from "./inventory.ts";
import { hashOf, type Operation, sameBytes } from "./operation.ts";

/** What the ledger says about an operation. */
export interface Noted {
  readonly hash: Uint8Array;
  readonly outcome: Outcome;
  readonly remaining: number;
}

/** What one operation makes of the stock. */
export interface Step<S> {
  readonly outcome: Outcome;

  /** The units it is about. */
  readonly quantity: number;
  readonly stock: S;
}

/** An operation that is decided, and still to be written. */
export interface Done extends Noted {
  readonly operation: Operation;
  readonly quantity: number;
}

export interface Plan<S> {
  readonly answers: readonly OrderAnswer[];

  /** What is new, to be written. */
  readonly done: readonly Done[];

  /** After all of it. */
  readonly stock: S;
  readonly isShort: boolean;
}

/** What operations start from. */
export interface Start<S> {
  readonly stock: S;

  /** By operation id. */
  readonly noted: ReadonlyMap<string, Noted>;
}

/** What each operation gets, one after the other. An id that comes twice is a replay too. */
export function planOf<S extends { readonly onHand: number }>(
  operations: readonly Operation[],
  start: Start<S>,
  step: (stock: S, operation: Operation) => Step<S>,
): Plan<S> {
  const known = new Map(start.noted);
  const done: Done[] = [];
  let { stock } = start;
  const answers = operations.map((operation): OrderAnswer => {
    const { operationId } = operation;
    const hash = hashOf(operation);
    const before = known.get(operationId);
    if (before && !sameBytes(before.hash, hash)) {
      return { operationId, outcome: "conflict", remaining: stock.onHand, replayed: false };
    }
    if (before) {
      return { operationId, outcome: before.outcome, remaining: before.remaining, replayed: true };
    }
    const { outcome, quantity, stock: next } = step(stock, operation);
    const remaining = next.onHand;
    stock = next;
    known.set(operationId, { hash, outcome, remaining });
    done.push({ operation, hash, outcome, quantity, remaining });
    return { operationId, outcome, remaining, replayed: false };
  });
  return { answers, done, stock, isShort: done.some(({ outcome }) => outcome === "sold-out") };
}
