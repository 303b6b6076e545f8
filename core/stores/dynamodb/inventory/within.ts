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
import { askForTurn } from "./turn.ts";

/** The most orders of one batch in a transaction, which has 97 writes. */
const MOST_ORDERS = 90;

/** Makes changes of stock a part of the transaction. */
export function within(
  context: DynamodbContext,
  tx: ItemTransaction,
  options: InventoryOptions,
): StockOperations {
  const { address } = context.dynamodb;
  if (tx.address !== address) {
    throw new TypeError(`the stock is in ${address}, and the step's journal in ${tx.address}`);
  }
  const operations = tx.part("operations", () => new Operations());
  const partOf = (sku: string) =>
    tx.part(`stock/${sku}`, () => new StockPart(context, tx, sku, operations));
  const applyMany = async (batch: OperationBatch) => {
    if (batch.operations.length > MOST_ORDERS) {
      throw new RangeError(`a step's transaction takes at most ${MOST_ORDERS} orders of one batch`);
    }
    const results = await tx.inTurn(() => plan(context, tx, partOf(batch.sku), batch));
    return results();
  };
  const get = async (sku: string) => {
    const part = partOf(sku);
    const item = await context.dynamodb.get(stockKey(sku), tx.signal);
    return levelOf(sku, await part.see(item && toStock(item)));
  };
  return createOperations(
    { get: (sku) => tx.inTurn(() => get(sku)), apply: asBatch(applyMany), applyMany },
    options,
  );
}

/** Resolves to a function that returns the results, or throws: a refused change leaves the transaction as it is. */
async function plan(
  context: DynamodbContext,
  tx: ItemTransaction,
  part: StockPart,
  batch: OperationBatch,
): Promise<() => readonly DecrementResult[]> {
  const { sku, fence } = batch;
  if (fence) await claimNowAndWithin(context.dynamodb, tx, fence);
  const read = await readSnapshot(context, batch, tx.signal);
  const stock = await part.see(read.stock);
  const snapshot = part.after({ ...read, stock }, batch);
  let planned: Plan<StockItem>;
  try {
    planned = planOn(batch, snapshot);
  } catch (error) {
    return () => {
      throw error;
    };
  }
  const mayGain = planned.isShort && planned.stock.reserved > 0;
  if (mayGain && (await releaseExpired(context, sku, tx.signal))) throw REPEAT;
  part.add(snapshot, planned);
  return () => planned.results;
}

/** The operations of a transaction, of all its skus: an id is used once. They are written with their stock. */
class Operations extends Map<string, RecordedOperation> implements Part {
  writes(): readonly TransactWrite[] {
    return [];
  }

  refused(): void {}
}

/** The changes of one sku in a transaction. They are planned one after the other, and written together. */
class StockPart implements Part {
  /** After all changes. Undefined before the first one. */
  stock: StockItem | undefined;
  readonly #context: DynamodbContext;
  readonly #tx: ItemTransaction;
  readonly #sku: string;
  readonly #operations: Operations;

  /** The stock that was read first. Undefined before that. */
  #before: { readonly stock: StockItem | undefined } | undefined;
  readonly #entries: ChunkEntry[] = [];
  readonly #writes: TransactWrite[] = [];

  /** The write of each reservation by its place. Undefined for one that the transaction has made and closed. */
  readonly #reservations = new Map<string, TransactWrite | undefined>();

  constructor(context: DynamodbContext, tx: ItemTransaction, sku: string, operations: Operations) {
    this.#context = context;
    this.#tx = tx;
    this.#sku = sku;
    this.#operations = operations;
  }

  /**
   * Returns the stock that was read, after the changes of this transaction.
   *
   * A body that is repeated since others have changed this stock asks for a turn that is as long as the last attempt.
   */
  async see(read: StockItem | undefined): Promise<StockItem | undefined> {
    let latest = read;
    const { lastAttempt, signal } = this.#tx;
    if (!this.#before && lastAttempt?.contested.has(this.#sku)) {
      latest = await askForTurn(this.#context, this.#sku, lastAttempt.span, signal);
    }
    this.#before ??= { stock: latest };
    return this.stock ?? latest;
  }

  /** Returns what was read, after the changes of this transaction. */
  after(read: StockSnapshot, { operations: [first] }: OperationBatch): StockSnapshot {
    const recorded = new Map([...read.recorded, ...this.#operations]);
    const id = first?.reservation ?? "";
    const made = recorded.get(id);
    const { sk } = reservationKey(this.#sku, made?.expiresAt ?? 0, id);
    const isSetAside = this.#reservations.has(sk) ? this.#makes(sk) : read.reservation.isSetAside;
    const isOpen = isSetAside && (made?.expiresAt ?? 0) > read.time;
    return { ...read, recorded, reservation: { made, isSetAside, isOpen } };
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
    // The cached stock is about to change, or was refused as outdated.
    this.#context.cache.delete(this.#sku);
    const change = { stock: this.stock, before: this.#before?.stock };
    const { writes } = writeStock(this.#sku, change, this.#entries);
    const reservations = [...this.#reservations.values()].filter((write) => write !== undefined);
    return [...writes, ...this.#writes, ...reservations];
  }

  /** Somebody has changed the stock since it was read: the body reads it again. */
  refused(): void {
    this.#tx.contested.add(this.#sku);
  }
}
