import { quote } from "../lock/errors.ts";
import type { Fence } from "../lock/fence.ts";
import type { Millis } from "../lock/time.ts";

/** What every change of stock says. */
export interface Change {
  /** 1 to 255 bytes. */
  readonly sku: string;

  /**
   * 1 to 255 bytes, chosen by the caller, unique to this change. Calling again with the same id and the same
   * payload does nothing and gives the first answer.
   */
  readonly operationId: string;

  /**
   * The fence of the lock on `stockLock(sku)`: a holder that is late is refused before it has read anything.
   * With locks and stock in the same etcd, so is one whose lock is gone, even before a successor has come.
   * The locks may live in another store than the stock, but all of a sku's fences come from one lock store.
   *
   * Without one, the change is still atomic, idempotent and never oversells; it is merely not ordered with
   * whoever works on the sku under a lock.
   */
  readonly fence?: Fence | undefined;

  /**
   * Gives up: rejects with the signal's reason where nothing has happened, and with an UnknownOutcomeError where
   * it may have, or may still; calling again with the same id finds out.
   */
  readonly signal?: AbortSignal | undefined;
}

export interface QuantityChange extends Change {
  /** A whole number from 1 to MOST_UNITS. */
  readonly quantity: number;
}

export interface Reserving extends QuantityChange {
  /**
   * After this many milliseconds, by the database's clock, the units go back on hand: never before, and on
   * etcd, which counts in whole seconds, up to about two seconds later.
   */
  readonly expiresIn: Millis;
}

export interface Closing extends Change {
  /** The operation id of the reservation. */
  readonly reservation: string;
}

/** - `sold-out`: fewer on hand than asked for. - `closed`: the reservation is not open any more. Neither changes anything. */
export type Outcome = "applied" | "sold-out" | "closed";

export interface Answer {
  readonly outcome: Outcome;

  /** What was on hand right after the operation. */
  readonly remaining: number;

  /** Whether this is the answer of an earlier call with the same operation id. */
  readonly replayed: boolean;
}

export interface Batch extends Omit<Change, "operationId"> {
  readonly orders: readonly Order[];
}

export interface Order {
  readonly operationId: string;
  readonly quantity: number;
}

/** `conflict`: the operation id was used for something else. */
export interface OrderAnswer extends Omit<Answer, "outcome"> {
  readonly operationId: string;
  readonly outcome: Outcome | "conflict";
}

export interface Stock {
  readonly sku: string;
  readonly onHand: number;
  readonly reserved: number;
  readonly sold: number;

  /** All that ever came in: always onHand + reserved + sold. */
  readonly supplied: number;
}

export type Kind = "set" | "restock" | "decrement" | "reserve" | "confirm" | "cancel" | "expire";

export interface Entry {
  readonly seq: number;
  readonly kind: Kind;
  readonly quantity: number;
  readonly outcome: Outcome;
  readonly remaining: number;
  readonly operationId: string | undefined;
  readonly reservation: string | undefined;

  /** The fence it was done under, as text. */
  readonly fence: string | undefined;

  /** By the database's clock; on etcd, where nobody can read it, by that of the client that did it. */
  readonly at: Date;
}

/**
 * Stock that is never sold twice: initial + restocked = on hand + reserved + sold, at all times.
 *
 * Each change is one transaction: the fence is claimed, the stock changes only as far as it reaches, and the
 * ledger takes note under the unique operation id. Rejects with FencedOutError, FenceInvalidError,
 * UnknownSkuError, UnknownReservationError, OperationConflictError, or as the database does; with a TypeError
 * or RangeError for bad input, before any I/O.
 */
export interface Inventory {
  get(sku: string): Promise<Stock | undefined>;

  /** Makes the units on hand exactly `quantity`, 0 allowed, and the sku if there is none. */
  set(change: QuantityChange): Promise<Answer>;

  restock(change: QuantityChange): Promise<Answer>;

  /** Sells. Calls for one sku that come while another one is under way share the next transaction. */
  decrement(change: QuantityChange): Promise<Answer>;

  /**
   * Sells to many orders for one sku in one transaction, in their order; an order that is too large is sold
   * out, and smaller ones after it may still be served. 1 to 1,000 orders; answers in the same order.
   */
  decrementMany(batch: Batch): Promise<readonly OrderAnswer[]>;

  /** Sets units aside; its operation id names the reservation. */
  reserve(change: Reserving): Promise<Answer>;

  /** Sells what was reserved. */
  confirm(change: Closing): Promise<Answer>;

  /** Puts what was reserved back on hand. */
  cancel(change: Closing): Promise<Answer>;

  /** Puts the sku's expired reservations back on hand; they are also put back whenever the stock runs short. */
  expire(sku: string): Promise<void>;

  /** The sku's ledger, newest first, at most `limit` entries, before entry `before` if given. */
  history(
    sku: string,
    options?: { readonly limit?: number; readonly before?: number },
  ): Promise<readonly Entry[]>;

  /**
   * Claims a resource for the holder of this fence, so that its predecessors are late from now on.
   *
   * For sections that read outside of one transaction, or span several: first this, then read, then write
   * under the same fence.
   */
  claim(fence: Fence): Promise<void>;
}

/** The most units in one change: sums of billions of such changes stay exact. */
export const MOST_UNITS = 1_000_000;

/** The name of the lock that orders the work on a sku. */
export function stockLock(sku: string): string {
  return `sku/${sku}`;
}

export type InventoryErrorCode = "UNKNOWN_SKU" | "UNKNOWN_RESERVATION" | "OPERATION_CONFLICT";

/** What is wrong with a request whatever the state of the stock. Recognise it by `code`. */
export class InventoryError extends Error {
  readonly code: InventoryErrorCode;
  readonly retryable = false;

  constructor(code: InventoryErrorCode, message: string) {
    super(message);
    this.name = new.target.name;
    this.code = code;
  }
}

export class UnknownSkuError extends InventoryError {
  constructor(sku: string) {
    super("UNKNOWN_SKU", `there is no sku ${quote(sku)}`);
  }
}

export class UnknownReservationError extends InventoryError {
  constructor(sku: string, reservation: string) {
    super(
      "UNKNOWN_RESERVATION",
      `there was never a reservation ${quote(reservation)} of ${quote(sku)}`,
    );
  }
}

/** The operation id was used before, for something else. Nothing has changed. */
export class OperationConflictError extends InventoryError {
  constructor(operationId: string) {
    super("OPERATION_CONFLICT", `operation ${quote(operationId)} was used for something else`);
  }
}
