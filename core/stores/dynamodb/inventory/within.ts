import { asBatch, createOperations } from "../../../inventory/backend.ts";
import type { InventoryOptions } from "../../../inventory/events.ts";
import type { DecrementResult, StockOperations } from "../../../inventory/inventory.ts";
import type { OperationBatch } from "../../../inventory/operation.ts";
import type { Plan } from "../../../inventory/plan.ts";
import type { TransactWrite } from "../client/dynamodb.ts";
import { type ItemTransaction, type Part, REPEAT } from "../client/transaction.ts";
import {
  expiryOf,
  planOn,
  readSnapshot,
  type StockSnapshot,
  toEntry,
  writeReservation,
} from "./change.ts";
import { releaseExpired } from "./expiry.ts";
import { claimNowAndWithin } from "./fence.ts";
import {
  type ChunkEntry,
  type DynamodbContext,
  levelOf,
  type RecordedOperation,
  reservationKey,
  type StockItem,
  stockKey,
  toStock,
  writeOperation,
  writeStock,
} from "./items.ts";

/** Makes changes of stock a part of the transaction. */
export function within(
  context: DynamodbContext,
  tx: ItemTransaction,
  options: InventoryOptions,
): StockOperations {
  const partOf = (sku: string) => tx.part(`stock/${sku}`, () => new StockPart(context, sku));
  const applyMany = (batch: OperationBatch) =>
    tx.inTurn(() => plan(context, tx, partOf(batch.sku), batch));
  const get = async (sku: string) => {
    const item = await context.dynamodb.get(stockKey(sku), tx.signal);
    return levelOf(sku, partOf(sku).stock ?? (item && toStock(item)));
  };
  return createOperations(
    { get: (sku) => tx.inTurn(() => get(sku)), apply: asBatch(applyMany), applyMany },
    options,
  );
}

async function plan(
  context: DynamodbContext,
  tx: ItemTransaction,
  part: StockPart,
  batch: OperationBatch,
): Promise<readonly DecrementResult[]> {
  const { sku, fence } = batch;
  const limit = tx.signal ?? NEVER;
  if (fence) await claimNowAndWithin(context.dynamodb, tx, fence);
  const snapshot = part.after(await readSnapshot(context, batch, limit), batch);
  const planned = planOn(batch, snapshot);
  const mayGain = planned.isShort && planned.stock.reserved > 0;
  if (mayGain && (await releaseExpired(context, sku, limit))) throw REPEAT;
  part.add(snapshot, planned);
  return planned.results;
}

const NEVER = new AbortController().signal;

/** The changes of one sku in a transaction. They are planned one after the other, and written together. */
class StockPart implements Part {
  /** After all changes. Undefined before the first one. */
  stock: StockItem | undefined;
  readonly #context: DynamodbContext;
  readonly #sku: string;
  #before: StockItem | undefined;
  readonly #entries: ChunkEntry[] = [];
  readonly #operations = new Map<string, RecordedOperation>();
  readonly #writes: TransactWrite[] = [];

  /** The write of each reservation by its place. Undefined for one that the transaction has made and closed. */
  readonly #reservations = new Map<string, TransactWrite | undefined>();

  constructor(context: DynamodbContext, sku: string) {
    this.#context = context;
    this.#sku = sku;
  }

  /** Returns what was read, after the changes of this transaction. */
  after(read: StockSnapshot, { operations: [first] }: OperationBatch): StockSnapshot {
    this.#before ??= read.stock;
    const recorded = new Map([...read.recorded, ...this.#operations]);
    const id = first?.reservation ?? "";
    const made = recorded.get(id);
    const { sk } = reservationKey(this.#sku, made?.expiresAt ?? 0, id);
    const isSetAside = this.#reservations.has(sk) ? this.#makes(sk) : read.reservation.isSetAside;
    const isOpen = isSetAside && (made?.expiresAt ?? 0) > read.time;
    const stock = this.stock ?? read.stock;
    return { ...read, stock, recorded, reservation: { made, isSetAside, isOpen } };
  }

  add(snapshot: StockSnapshot, { planned, stock }: Plan<StockItem>): void {
    if (planned.length === 0) return;
    this.stock = stock;
    for (const one of planned) {
      const { kind, sku, quantity, operationId } = one.operation;
      const { hash, outcome, remaining } = one;
      const expiresAt = expiryOf(one, snapshot);
      const recorded = { kind, sku, quantity, expiresAt, hash, outcome, remaining };
      this.#operations.set(operationId, recorded);
      this.#entries.push(toEntry(one));
      this.#writes.push(writeOperation(one, expiresAt));
      for (const write of writeReservation(one, snapshot)) {
        const { sk } = write.key;
        this.#reservations.set(sk, this.#makes(sk) ? undefined : write);
      }
    }
  }

  #makes(sk: string): boolean {
    const write = this.#reservations.get(sk);
    return write !== undefined && "update" in write;
  }

  writes(): readonly TransactWrite[] {
    if (!this.stock) return [];
    // It will be another one, or was contradicted.
    this.#context.cache.delete(this.#sku);
    const change = { stock: this.stock, before: this.#before };
    const { writes } = writeStock(this.#sku, change, this.#entries);
    const reservations = [...this.#reservations.values()].filter((write) => write !== undefined);
    return [...writes, ...this.#writes, ...reservations];
  }

  /** Somebody has changed the stock since it was read: the body reads it again. */
  refused(): void {}
}
