import { wrongType } from "../lock/checks.ts";
import type { Duration } from "../lock/duration.ts";
import { quote } from "../lock/errors.ts";
import type { Fence } from "../lock/fence.ts";
import type { Millis } from "../lock/time.ts";

/** The arguments that every change of stock has. */
export interface StockChange {
  /** 1 to 255 bytes. */
  readonly sku: string;

  /**
   * 1 to 255 bytes, chosen by the caller, unique to this change. A second call with the same id and the same
   * payload changes nothing and returns the first result.
   */
  readonly operationId: string;

  /**
   * The fence of the lock on `stockLock(sku)`: the change of a late holder is refused before it reads anything.
   * Where the stock's statements can see the lock itself, a fence is refused as soon as its lock is gone, even before the
   * next holder has come. The locks may live in another store than the stock, but all fences of a sku come from one
   * lock store.
   *
   * Without a fence the change is still atomic, idempotent and never oversells; only its order relative to the
   * holders of the lock is undefined.
   */
  readonly fence?: Fence | undefined;

  /**
   * Aborts the change. The call rejects with the signal's reason if the change is not applied, and with an
   * UnknownOutcomeError if it may be applied, now or later; a second call with the same id tells.
   */
  readonly signal?: AbortSignal | undefined;
}

export interface QuantityChange extends StockChange {
  /** A whole number from 1 to MAX_QUANTITY. */
  readonly quantity: number;
}

export interface NewReservation extends QuantityChange {
  /**
   * After this time (milliseconds, or a text such as "15m"; a day at the most), by the database's clock, the units go back
   * on hand: never earlier, and where that clock tells whole seconds, up to about two seconds later. A repetition with the
   * same operation id does not move that time.
   */
  readonly expiresIn: Duration;
}

export interface CloseReservation extends StockChange {
  /** The operation id of the reservation. */
  readonly reservation: string;
}

/**
 * - `sold-out`: fewer units are on hand than requested.
 * - `closed`: the reservation is no longer open.
 *
 * Neither of the two changes the stock.
 */
export type StockOutcome = "applied" | "sold-out" | "closed";

export interface StockResult {
  /** `sold-out`: fewer units are on hand than requested. `closed`: the reservation is no longer open. */
  readonly outcome: StockOutcome;

  /** The units on hand right after the operation. */
  readonly remaining: number;

  /** Whether this is the result of an earlier request with the same operation id: of another call, or of this one. */
  readonly replayed: boolean;
}

export interface DecrementBatch extends Omit<StockChange, "operationId"> {
  readonly orders: readonly DecrementOrder[];
}

export interface DecrementOrder {
  readonly operationId: string;
  readonly quantity: number;
}

/** `conflict`: the operation id was already used for another change. */
export interface DecrementResult extends Omit<StockResult, "outcome"> {
  readonly operationId: string;
  readonly outcome: StockOutcome | "conflict";
}

export interface StockLevel {
  readonly sku: string;
  readonly onHand: number;
  readonly reserved: number;
  readonly sold: number;

  /** All units that ever came in: always onHand + reserved + sold. */
  readonly supplied: number;
}

export type LedgerEntryKind =
  | "set"
  | "restock"
  | "decrement"
  | "reserve"
  | "confirm"
  | "cancel"
  | "expire";

export interface LedgerEntry {
  readonly seq: number;
  readonly kind: LedgerEntryKind;
  readonly quantity: number;
  readonly outcome: StockOutcome;
  readonly remaining: number;
  readonly operationId: string | undefined;
  readonly reservation: string | undefined;

  /** The fence of the operation, as text. */
  readonly fence: string | undefined;

  /** By the database's clock, or by the client's where statements cannot read the database's. */
  readonly at: Date;
}

/** A reservation whose units are set aside. */
export interface Reservation {
  /** The operation id of its reserve. */
  readonly id: string;
  readonly quantity: number;

  /** The time until it expires, by the database's clock. 0: it has expired, and its units are not yet back on hand. */
  readonly expiresIn: Millis;
}

/**
 * Reads and changes of stock. A SQL store also offers them within a caller's transaction.
 *
 * Each change is one transaction: it claims the fence, changes the stock only as far as the stock suffices, and
 * writes a ledger entry under the unique operation id. Changes reject with FencedOutError, FenceInvalidError,
 * InventoryError, or the error of the database; with a TypeError or RangeError for invalid arguments, before any I/O.
 */
export interface StockOperations {
  get(sku: string): Promise<StockLevel | undefined>;

  /** Sets the units on hand to `quantity`, 0 allowed. Creates the sku if it does not exist. */
  set(change: QuantityChange): Promise<StockResult>;

  restock(change: QuantityChange): Promise<StockResult>;

  /** Sells units. Concurrent calls for one sku share a transaction, unless they are part of the caller's. */
  decrement(change: QuantityChange): Promise<StockResult>;

  /**
   * Sells units of one sku to many orders in one transaction, in their order. An order that exceeds the stock is
   * sold out, and smaller orders after it may still be served. 1 to 1,000 orders; results in the same order. A
   * store whose transactions are smaller uses several.
   */
  decrementMany(batch: DecrementBatch): Promise<readonly DecrementResult[]>;

  /** Sets units aside; the operation id names the reservation. */
  reserve(change: NewReservation): Promise<StockResult>;

  /** Sells the reserved units. */
  confirm(change: CloseReservation): Promise<StockResult>;

  /** Puts the reserved units back on hand. */
  cancel(change: CloseReservation): Promise<StockResult>;
}

/** Stock that never oversells: initial + restocked = on hand + reserved + sold, at all times. */
export interface Inventory extends StockOperations {
  /** Releases the sku's expired reservations. Changes do the same whenever the stock runs short. */
  expire(sku: string): Promise<void>;

  /** Lists the skus that start with `prefix`, in the store's order: at most `limit` (default 100) after the sku `after`. */
  list(options?: {
    readonly prefix?: string;
    readonly after?: string;
    readonly limit?: number;
  }): Promise<readonly StockLevel[]>;

  /** Reads the sku's ledger, newest first: at most `limit` entries, all before entry `before` if given. */
  history(
    sku: string,
    options?: { readonly limit?: number; readonly before?: number },
  ): Promise<readonly LedgerEntry[]>;

  /** Lists the sku's reservations whose units are set aside, in the store's order: at most `limit` (default 100). */
  reservations(sku: string, options?: { readonly limit?: number }): Promise<readonly Reservation[]>;

  /**
   * Claims a resource for the holder of this fence: earlier holders are refused from now on.
   *
   * A section that reads outside a transaction, or spans several transactions, calls this first, then reads,
   * then writes under the same fence.
   */
  claim(fence: Fence): Promise<void>;
}

/** The most units in one change: sums of billions of changes stay exact. */
export const MAX_QUANTITY = 1_000_000;

/** Returns the name of the lock that orders the work on a sku. */
export function stockLock(sku: string): string {
  if (typeof sku !== "string") throw wrongType("sku", "a string", sku);
  return lockOf(sku);
}

/** The same for events, whose change refuses a wrong sku. */
export function lockOf(sku: unknown): string {
  return `sku/${String(sku)}`;
}

export type InventoryErrorCode = "UNKNOWN_SKU" | "UNKNOWN_RESERVATION" | "OPERATION_CONFLICT";

/**
 * A request that is wrong whatever the level of the stock is: an unknown sku, an unknown reservation, or an operation id
 * that was already used for another change. Nothing has changed. Recognise it by `code`.
 */
export class InventoryError extends Error {
  override readonly name = "InventoryError";
  readonly code: InventoryErrorCode;
  readonly retryable = false;

  constructor(code: InventoryErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

export function unknownSku(sku: string): InventoryError {
  return new InventoryError("UNKNOWN_SKU", `sku ${quote(sku)} does not exist; create it with set`);
}

export function unknownReservation(sku: string, reservation: string): InventoryError {
  return new InventoryError(
    "UNKNOWN_RESERVATION",
    `reservation ${quote(reservation)} of sku ${quote(sku)} was never made; name the operation id of its reserve`,
  );
}

export function operationConflict(operationId: string): InventoryError {
  return new InventoryError(
    "OPERATION_CONFLICT",
    `operation id ${quote(operationId)} was already used for another change; choose a new id`,
  );
}
