import type {
  LedgerEntry,
  LedgerEntryKind,
  StockLevel,
  StockOutcome,
} from "../../../inventory/inventory.ts";
import { type OperationKind, payloadHash } from "../../../inventory/operation.ts";
import type { PlannedOperation, PriorResult } from "../../../inventory/plan.ts";
import type { StockUnits } from "../../../inventory/transitions.ts";
import type { KeyedQueue } from "../../../lock/keyed-queue.ts";
import type { RecentMap } from "../../../lock/recent-map.ts";
import type { Dynamodb, ItemWrite } from "../client/dynamodb.ts";
import type { Item, ItemKey } from "../client/items.ts";

/** The client of one inventory, and what it remembers. */
export interface DynamodbContext {
  readonly dynamodb: Dynamodb;

  /** Stock as it was last read or written: a guess that each transaction verifies. */
  readonly cache: RecentMap<StockItem>;

  /** Orders this client's changes by sku. */
  readonly queue: KeyedQueue;
}

/** The units of a sku, with the number of the last entry in its ledger: each change of the sku raises the number. */
export interface StockItem extends StockUnits {
  readonly seq: number;

  /** The milliseconds of all calls of `askForTurn`. 0: the item has no such attribute. */
  readonly turn: number;
}

export const NO_STOCK: StockItem = {
  onHand: 0,
  reserved: 0,
  sold: 0,
  supplied: 0,
  seq: 0,
  turn: 0,
};

/** The start of the partition keys of stock. */
export const STOCK = "stock/";

/** The place of the units in the partition of their sku. */
export const UNITS = "units";

export function stockKey(sku: string): ItemKey {
  return { pk: STOCK + sku, sk: UNITS };
}

/** The key of a chunk of ledger entries, by the number of its first one. */
export function ledgerKey(sku: string, seq: number): ItemKey {
  return { pk: STOCK + sku, sk: `ledger/${sortable(seq)}` };
}

/** The key of a reservation. Those that expire first come first. */
export function reservationKey(sku: string, expiresAt: number, id: string): ItemKey {
  return { pk: STOCK + sku, sk: `reservation/${sortable(expiresAt)}/${id}` };
}

/** Operation ids are unique among all skus. */
export function operationKey(id: string): ItemKey {
  return { pk: `operation/${id}`, sk: "operation" };
}

function sortable(number: number): string {
  return String(number).padStart(16, "0");
}

export function toStock({ onHand, reserved, sold, supplied, seq, turn }: Item): StockItem {
  return {
    onHand: Number(onHand),
    reserved: Number(reserved),
    sold: Number(sold),
    supplied: Number(supplied),
    seq: Number(seq),
    turn: Number(turn ?? 0),
  };
}

export function levelOf(sku: string, stock: StockItem | undefined): StockLevel | undefined {
  if (stock === undefined) return undefined;
  const { onHand, reserved, sold, supplied } = stock;
  return { sku, onHand, reserved, sold, supplied };
}

/** An operation that was done, with its result. */
export interface RecordedOperation extends PriorResult {
  readonly kind: OperationKind;
  readonly sku: string;
  readonly quantity: number;

  /** For a reservation: when it expires, by the server's clock. */
  readonly expiresAt: number;
}

export function toRecorded(item: Item): RecordedOperation {
  const { sku = "", reservation, expiresAt = 0 } = item;
  const [kind, quantity] = [item.kind as OperationKind, Number(item.quantity)];
  return {
    kind,
    sku,
    quantity,
    expiresAt: Number(expiresAt),
    hash: payloadHash({ kind, sku, quantity, reservation }),
    outcome: item.outcome as StockOutcome,
    remaining: Number(item.remaining),
  };
}

/** Records an operation under an id that was never used. */
export function writeOperation(planned: PlannedOperation, expiresAt: number): ItemWrite {
  const { operation, outcome, remaining } = planned;
  const { operationId, kind, sku, quantity, reservation } = operation;
  return {
    key: operationKey(operationId),
    update:
      "SET #kind = :kind, #sku = :sku, #quantity = :quantity, #outcome = :outcome, " +
      "#remaining = :remaining, #expiresAt = :expiresAt" +
      (reservation === undefined ? "" : ", #reservation = :reservation"),
    when: "attribute_not_exists(#pk)",
    values: {
      ...{ kind, sku, quantity, outcome, remaining, expiresAt },
      ...(reservation !== undefined && { reservation }),
    },
  };
}

/** An entry of the ledger without what its chunk has. */
export type ChunkEntry = Omit<LedgerEntry, "seq" | "at">;

/** Writes the new stock of a sku, if it has not changed since it was read, and its ledger entries. */
export function writeStock(
  sku: string,
  { stock, before }: { readonly stock: StockItem; readonly before: StockItem | undefined },
  entries: readonly ChunkEntry[],
): { readonly writes: readonly [ItemWrite, ItemWrite]; readonly after: StockItem } {
  const first = stock.seq + 1;
  const after = { ...stock, seq: stock.seq + entries.length };
  return {
    after,
    writes: [
      {
        key: stockKey(sku),
        update:
          "SET #onHand = :onHand, #reserved = :reserved, #sold = :sold, " +
          "#supplied = :supplied, #seq = :seq",
        when: before ? isStill(before) : "attribute_not_exists(#pk)",
        values: { ...after, ...(before && prefixed(before)) },
      },
      {
        key: ledgerKey(sku, first),
        update: "SET #first = :first, #at = :at, #entries = :entries",
        values: { first, at: Date.now(), entries: JSON.stringify(entries) },
      },
    ],
  };
}

/** All numbers count: after somebody has deleted the item, another one has the same `seq` again. */
function isStill({ turn, ...numbers }: StockItem): string {
  const same = Object.keys(numbers).map((name) => `#${name} = :before_${name}`);
  const isSameTurn = turn === 0 ? "attribute_not_exists(#turn)" : "#turn = :before_turn";
  return [...same, isSameTurn].join(" AND ");
}

function prefixed(before: StockItem): Readonly<Record<string, number>> {
  return Object.fromEntries(
    Object.entries(before).map(([name, value]) => [`before_${name}`, value]),
  );
}

/** Returns the entries of a chunk, newest first. */
export function toEntries({ first, at, entries = "[]" }: Item): readonly LedgerEntry[] {
  const texts: readonly (ChunkEntry & { readonly kind: LedgerEntryKind })[] = JSON.parse(entries);
  return texts
    .map(({ operationId, reservation, fence, ...entry }, i) => ({
      ...entry,
      operationId,
      reservation,
      fence,
      seq: Number(first) + i,
      at: new Date(Number(at)),
    }))
    .reverse();
}
