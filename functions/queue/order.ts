import type { SQSRecord } from "aws-lambda";
import { toOperation } from "../../core/inventory/check.ts";
import { bodyOf, InvalidMessageError } from "./message.ts";

export interface StockOrder {
  /** 1 to 255 bytes: the operation id of the sale. */
  readonly orderId: string;
  readonly sku: string;

  /** A whole number from 1 to 1,000,000. */
  readonly quantity: number;
}

export type ToOrder = (body: unknown, record: SQSRecord) => StockOrder;

/** Throws for a message that is no order. */
export function orderOf(record: SQSRecord, toOrder: ToOrder = plainOrder): StockOrder {
  const { orderId, sku, quantity } = toOrder(bodyOf(record), record);
  toOperation("decrement", { operationId: orderId, sku, quantity });
  return { orderId, sku, quantity };
}

function plainOrder(body: unknown): StockOrder {
  if (typeof body !== "object" || body === null) throw new InvalidMessageError("it is no object");
  const { orderId, sku, quantity = 1 } = body as StockOrder;
  return { orderId, sku, quantity };
}
