import type { SQSBatchResponse, SQSEvent, SQSRecord } from "aws-lambda";
import { MOST_ORDERS } from "../../core/inventory/check.ts";
import {
  InventoryError,
  OperationConflictError,
  type OrderAnswer,
} from "../../core/inventory/inventory.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { Millis } from "../../core/lock/time.ts";
import { type Duration, toMillis } from "../../core/steps/duration.ts";
import type { LambdaContext } from "../lambda/invocation.ts";
import { from, type Source } from "../lambda/source.ts";
import { answerBatch } from "./batch.ts";
import { arrange } from "./lines.ts";
import { type BatchOptions, checkOptions } from "./options.ts";
import { orderOf, type StockOrder, type ToOrder } from "./order.ts";
import { type Stock, sell } from "./sale.ts";
import { DONE, later, type Verdict } from "./verdict.ts";

export const DEFAULT_WAIT: Millis = 5_000;

export interface StockOptions extends BatchOptions {
  /** The order in a message. Default: `{ orderId, sku, quantity }`, the quantity 1 where there is none. */
  readonly order?: ToOrder;

  /**
   * Told of each order's answer, which stands in the inventory's ledger: 50 at a time for a sku, and one after the
   * other on a FIFO queue. Until it has resolved, the message comes again, and so does the same answer with
   * `replayed: true`.
   */
  readonly onAnswer?: (answer: StockAnswer, record: SQSRecord) => Promise<unknown>;

  /** How long to stand in line for a sku's lock, and no longer than the invocation allows. Default 5 s. */
  readonly wait?: Duration;

  /** How long a sku stays locked after its holder was killed; the lock is never renewed. Default 10 s. */
  readonly ttl?: Duration;
}

export interface StockAnswer extends StockOrder {
  readonly outcome: "applied" | "sold-out";

  /** What was on hand right after it. */
  readonly remaining: number;
  readonly replayed: boolean;
}

/**
 * A Lambda handler for a queue of orders: those of a batch for the same sku are sold under one lock and in one
 * transaction, each of them once, however often its message is delivered.
 *
 * Poison are messages that are no order, orders for a sku that is not there, and an order id that comes again for
 * something else.
 */
export function stockHandler(
  stock: Source<Stock>,
  options: StockOptions = {},
): (event: SQSEvent, context: LambdaContext) => Promise<SQSBatchResponse> {
  const checked = checkOptions(options);
  const { wait = DEFAULT_WAIT, ttl = 10_000 } = options;
  const patience = { wait: toMillis("wait", wait), ttl: toMillis("ttl", ttl, 1) };
  return (event, context) => {
    const orders = new Map<SQSRecord, Read>();
    const read = (record: SQSRecord): Read => {
      const known = orders.get(record) ?? readOrder(record, options);
      orders.set(record, known);
      return known;
    };
    return answerBatch(event, context, checked, {
      arrange: (records) =>
        arrange(records, (record) => read(record).order?.sku ?? record, MOST_ORDERS),
      async carry(unit, invocation) {
        const wanted = unit.flatMap((record) => read(record).order ?? []);
        // What is no order is a unit by itself.
        if (wanted.length === 0) return unit.map((record) => () => poison(read(record).error));
        try {
          const answers = await sell(await from(stock), wanted, patience, invocation);
          return unit.map((record, i) => () => tell(wanted[i], answers[i], record));
        } catch (error) {
          return unit.map(() => () => notSold(error));
        }
      },
    });
  };

  async function tell(
    order: StockOrder | undefined,
    answer: OrderAnswer | undefined,
    record: SQSRecord,
  ): Promise<Verdict> {
    if (!order || !answer) return later("error");
    const { outcome, remaining, replayed } = answer;
    if (outcome === "conflict") return poison(new OperationConflictError(order.orderId));
    if (outcome === "closed") return later("error");
    try {
      await options.onAnswer?.({ ...order, outcome, remaining, replayed }, record);
      return DONE;
    } catch (error) {
      return later("error", 0, error);
    }
  }
}

interface Read {
  readonly order?: StockOrder;
  readonly error?: unknown;
}

function readOrder(record: SQSRecord, { order }: StockOptions): Read {
  try {
    return { order: orderOf(record, order) };
  } catch (error) {
    return { error };
  }
}

function poison(error: unknown): Verdict {
  return { kind: "poison", error };
}

/** Nobody is to blame for contention, for being late, or for a store that is away. */
function notSold(error: unknown): Verdict {
  if (error instanceof InventoryError) return poison(error);
  const isBusy = hasCode(error, "LOCK_TIMEOUT", "TOO_MANY_WAITERS", "FENCED_OUT", "LOCK_LOST");
  return later(isBusy ? "busy" : "error", 0, error);
}
