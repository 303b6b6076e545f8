import { checkSignal, checkText, checkWhole, LONGEST_SPAN, wrongType } from "../lock/checks.ts";
import { type Duration, toMillis } from "../lock/duration.ts";
import { quote, StoreUnavailableError } from "../lock/errors.ts";
import { checkFence, type Fence } from "../lock/fence.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import { RecentMap } from "../lock/recent-map.ts";
import { sha256 } from "../lock/sha256.ts";
import { LONGEST_CALL } from "../lock/time.ts";
import {
  type CloseReservation,
  type DecrementBatch,
  type DecrementOrder,
  type DecrementResult,
  type LedgerEntryKind,
  MAX_QUANTITY,
  type NewReservation,
  type QuantityChange,
  type StockChange,
  type StockResult,
  stockLock,
} from "./inventory.ts";

/** The longest sku or operation id, in bytes of UTF-8. */
export const MAX_ID_BYTES = 255;

/** The most orders in one batch: a batch locks the row of the stock until all of them are written. */
export const MAX_BATCH_ORDERS = 1_000;

export type OperationKind = Exclude<LedgerEntryKind, "expire">;

/** A checked change of one sku, as the ledger records it. */
export interface Operation {
  readonly kind: OperationKind;
  readonly sku: string;
  readonly operationId: string;
  readonly fence: Fence | undefined;
  readonly quantity: number;

  /** The operation id of the reservation to close. */
  readonly reservation: string | undefined;

  /** In microseconds, for a new reservation. */
  readonly expiresIn: number;
}

/** Operations on one sku under one fence, in order. */
export interface OperationBatch {
  readonly sku: string;
  readonly fence: Fence | undefined;
  readonly operations: readonly Operation[];
}

/** Applies operations in one store. */
export interface OperationBackend {
  /** The address of the store for messages: without secrets. */
  readonly address: string;

  /** How many concurrent calls for one sku share a transaction. Default: 1,000 decrements, and no reservations. */
  readonly groupSizes?: { readonly decrement: number; readonly reserve: number };

  /** Applies the operation once, however often this is called. */
  apply(operation: Operation, signal: AbortSignal | undefined): Promise<StockResult>;

  /** Applies a batch of decrements, or of reservations if they have a group size, in one transaction. */
  applyMany(
    batch: OperationBatch,
    signal: AbortSignal | undefined,
  ): Promise<readonly DecrementResult[]>;
}

/** Converts the arguments of a call to a checked operation. Throws a TypeError or RangeError. */
export function toOperation(
  kind: OperationKind,
  change: StockChange & Partial<QuantityChange & NewReservation & CloseReservation>,
): Operation {
  checkArgument(kind, change);
  checkOptionNames(kind, change, CHANGE_MEMBERS);
  const { sku, operationId, fence, quantity, reservation, expiresIn } = change;
  checkSku(sku);
  checkText("operation id", operationId, MAX_ID_BYTES);
  const closes = kind === "confirm" || kind === "cancel";
  if (closes) checkText("reservation", reservation, MAX_ID_BYTES);
  else checkWhole("quantity", quantity, kind === "set" ? 0 : 1, MAX_QUANTITY);
  if (fence !== undefined) checkFence(fence, stockLock(sku));
  checkSignal(change.signal);
  return {
    kind,
    sku,
    operationId,
    fence,
    // What another kind of change would need may be in the object, too.
    quantity: closes ? 0 : (quantity ?? 0),
    reservation: closes ? reservation : undefined,
    expiresIn: kind === "reserve" ? toMicros(expiresIn) : 0,
  };
}

/** Those of all changes: each takes what another one needs, and leaves it alone. */
const CHANGE_MEMBERS = {
  sku: true,
  operationId: true,
  fence: true,
  signal: true,
  quantity: true,
  expiresIn: true,
  reservation: true,
} satisfies OptionNames<StockChange & QuantityChange & NewReservation & CloseReservation>;

/** Throws a TypeError unless the argument of a change is an object. */
export function checkArgument(call: OperationKind | "decrementMany", change: unknown): void {
  if (typeof change === "object" && change !== null) return;
  const members = call === "decrementMany" ? "{ sku, orders, … }" : "{ sku, operationId, … }";
  throw wrongType(`the argument of ${call}`, members, change);
}

const BATCH_MEMBERS = {
  sku: true,
  orders: true,
  fence: true,
  signal: true,
} satisfies OptionNames<DecrementBatch>;

/** Converts the argument of a call to checked operations. Throws a TypeError or RangeError. */
export function toOperations(batch: DecrementBatch): readonly Operation[] {
  checkArgument("decrementMany", batch);
  const { sku, orders, fence, signal } = batch;
  checkOrders(orders);
  checkOptionNames("decrementMany", batch, BATCH_MEMBERS);
  // Visits holes, too. An order may have other members.
  return Array.from(orders, (order) => {
    const { operationId, quantity } = Object(order) as DecrementOrder;
    return toOperation("decrement", { operationId, quantity, sku, fence, signal });
  });
}

function toMicros(expiresIn: Duration | undefined): number {
  return Math.round(toMillis("expiresIn", expiresIn as Duration, 1, LONGEST_SPAN) * 1_000);
}

export function checkSku(sku: unknown): asserts sku is string {
  checkText("sku", sku, MAX_ID_BYTES);
  // Its lock could not be on etcd: Lockstep's own keys begin with this segment.
  if (/(^|\/)%lockstep(\/|$)/.test(sku)) {
    throw new RangeError(`sku ${quote(sku)} must not have a segment "%lockstep"`);
  }
}

function checkOrders(orders: readonly DecrementOrder[]): void {
  if (!Array.isArray(orders)) throw wrongType("orders", "a list", orders);
  if (orders.length === 0 || orders.length > MAX_BATCH_ORDERS) {
    throw new RangeError(`a batch has 1 to ${MAX_BATCH_ORDERS} orders, not ${orders.length}`);
  }
}

/** Describes a batch for messages. */
export function describeBatch({ sku, operations }: OperationBatch): string {
  const [first] = operations;
  return first && operations.length === 1
    ? `${first.kind} ${quote(first.operationId)}`
    : `a batch of ${operations.length} for ${quote(sku)}`;
}

/** Error for a change that was not sent, since the client's earlier changes of its sku took too long. */
export function queuedTooLong(address: string, sku: string): StoreUnavailableError {
  const span = `${LONGEST_CALL / 1_000} s`;
  const problem = `this client's earlier changes of ${quote(sku)} took ${span}; begin fewer at once`;
  return new StoreUnavailableError(address, problem);
}

type Payload = Pick<Operation, "kind" | "sku" | "quantity" | "reservation">;

/** The hashes of changes that name no reservation: orders of one sku often have equal quantities. */
const hashes = new RecentMap<Uint8Array>();

/** Hashes the fields that must be equal in every call with one operation id. */
export function payloadHash({ kind, sku, quantity, reservation = "" }: Payload): Uint8Array {
  const text = JSON.stringify([kind, sku, quantity, reservation]);
  if (reservation !== "") return sha256(text);
  const known = hashes.get(text);
  if (known) return known;
  const hash = sha256(text);
  hashes.set(text, hash);
  return hash;
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
