import type { SQSBatchResponse, SQSEvent, SQSRecord } from "aws-lambda";
import {
  type DecrementResult,
  InventoryError,
  operationConflict,
} from "../../../core/inventory/inventory.ts";
import { MAX_BATCH_ORDERS, toOperation } from "../../../core/inventory/operation.ts";
import { LONGEST_SPAN } from "../../../core/lock/checks.ts";
import { type Duration, toMillis } from "../../../core/lock/duration.ts";
import { hasCode } from "../../../core/lock/errors.ts";
import { KeyedQueue } from "../../../core/lock/keyed-queue.ts";
import { checkOptionNames, type OptionNames } from "../../../core/lock/options.ts";
import type { StockOrder } from "../../batch/orders.ts";
import { type LambdaContext, MIN_WORK_TIME } from "../../invocation/invocation.ts";
import { type Provider, resolve } from "../../invocation/provider.ts";
import { groupMessages, processBatch } from "./batch.ts";
import { type Disposition, DONE, poison, retry } from "./disposition.ts";
import { bodyOf, invalidMessage } from "./message.ts";
import { BATCH_OPTIONS, type BatchOptions, checkOptions, type PoisonOptions } from "./options.ts";
import { type StockBackend, sell } from "./sale.ts";
import { inTraceOf } from "./trace.ts";

export interface StockHandlerOptions extends BatchOptions {
  /** Returns the order in a message. Default: `{ orderId, sku, quantity }`; a missing quantity is 1. */
  readonly order?: (body: unknown, record: SQSRecord) => StockOrder;

  /**
   * Called with each order's result, which the inventory's ledger has too: for up to 50 orders of a sku at a time, and
   * one after the other on a FIFO queue. Until the promise resolves, the message is delivered again, with the same
   * result and `replayed: true`.
   */
  readonly onAnswer?: (result: SaleResult, record: SQSRecord) => Promise<unknown>;

  /** The longest wait for a sku's lock, within the invocation. Default 0: the messages of a busy sku come back later. */
  readonly wait?: Duration;

  /** The time after which the lock of a killed process expires; the lock is never renewed. Default 10 s. */
  readonly ttl?: Duration;
}

export interface SaleResult extends StockOrder {
  readonly outcome: "applied" | "sold-out";

  /** The units on hand right after the sale. */
  readonly remaining: number;
  readonly replayed: boolean;
}

const POISON_OPTIONS = { to: true } satisfies OptionNames<PoisonOptions>;
const OPTIONS = {
  ...BATCH_OPTIONS,
  order: true,
  onAnswer: true,
  wait: true,
  ttl: true,
} satisfies OptionNames<StockHandlerOptions>;

/**
 * Returns a Lambda handler for a queue of orders. The orders of a batch for the same sku are sold under one lock and in
 * one transaction. Each order is sold once, however often its message is delivered.
 *
 * Poison messages: no valid order, an order for an unknown sku, and an order id that was used for another order.
 */
export function stockHandler(
  stock: Provider<StockBackend>,
  options: StockHandlerOptions = {},
): (event: SQSEvent, context: LambdaContext) => Promise<SQSBatchResponse> {
  checkOptionNames("stockHandler", options, OPTIONS);
  checkOptionNames("poison", options.poison, POISON_OPTIONS);
  const checked = checkOptions(options);
  const { wait = 0, ttl = 10_000 } = options;
  const times = {
    wait: toMillis("wait", wait, 0, LONGEST_SPAN),
    ttl: toMillis("ttl", ttl, 1, LONGEST_SPAN),
  };
  return (event, context) => {
    const orders = new Map<SQSRecord, ParsedOrder>();
    // Message groups of a FIFO queue may have orders for one sku: they must not find its lock busy.
    const turns = new KeyedQueue(Number.POSITIVE_INFINITY);
    const parsed = (record: SQSRecord): ParsedOrder => {
      const known = orders.get(record) ?? parseOrder(record, options);
      orders.set(record, known);
      return known;
    };
    return processBatch(event, context, checked, {
      group: (records) =>
        groupMessages(records, (record) => parsed(record).order?.sku ?? record, MAX_BATCH_ORDERS),
      async process(chunk, invocation) {
        const valid = chunk.flatMap((record) => parsed(record).order ?? []);
        // An invalid order is alone in its chunk.
        if (valid.length === 0) return chunk.map((record) => () => poison(parsed(record).error));
        try {
          const backend = await resolve(stock);
          const [{ sku }] = valid as [StockOrder];
          const sale = async () => {
            await turns.enter(sku, invocation.signal);
            try {
              if (invocation.deadline.remaining() < MIN_WORK_TIME) return undefined;
              return await sell(backend, valid, times, invocation);
            } finally {
              turns.leave(sku);
            }
          };
          // The orders share a transaction, which can be in one trace.
          const answers = await inTraceOf(chunk[0] as SQSRecord, sale);
          if (answers === undefined) return chunk.map(() => () => retry("unstarted"));
          return chunk.map(
            (record, i) => () => inTraceOf(record, () => report(valid[i], answers[i], record)),
          );
        } catch (error) {
          return chunk.map(() => () => dispositionOf(error));
        }
      },
    });
  };

  async function report(
    order: StockOrder | undefined,
    answer: DecrementResult | undefined,
    record: SQSRecord,
  ): Promise<Disposition> {
    if (!order || !answer) return retry("error");
    const { outcome, remaining, replayed } = answer;
    if (outcome === "conflict") return poison(operationConflict(order.orderId));
    if (outcome === "closed") return retry("error");
    try {
      await options.onAnswer?.({ ...order, outcome, remaining, replayed }, record);
      return DONE;
    } catch (error) {
      return retry("error", 0, error);
    }
  }
}

interface ParsedOrder {
  readonly order?: StockOrder;
  readonly error?: unknown;
}

function parseOrder(record: SQSRecord, { order: toOrder = plainOrder }: StockHandlerOptions) {
  try {
    const { orderId, sku, quantity } = toOrder(bodyOf(record), record);
    toOperation("decrement", { operationId: orderId, sku, quantity });
    return { order: { orderId, sku, quantity } };
  } catch (error) {
    return { error };
  }
}

function plainOrder(body: unknown): StockOrder {
  if (typeof body !== "object" || body === null) {
    throw invalidMessage("the body is not an object");
  }
  const { orderId, sku, quantity = 1 } = body as StockOrder;
  return { orderId, sku, quantity };
}

/** Contention, a late holder and an unavailable store are not the fault of a message. */
function dispositionOf(error: unknown): Disposition {
  if (error instanceof InventoryError) return poison(error);
  const isBusy = hasCode(error, "LOCK_TIMEOUT", "TOO_MANY_WAITERS", "FENCED_OUT", "LOCK_LOST");
  return retry(isBusy ? "busy" : "error", 0, error);
}
