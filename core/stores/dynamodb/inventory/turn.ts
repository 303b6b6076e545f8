import { LONGEST_TURN, withoutEffect } from "../../../inventory/turn.ts";
import type { Millis } from "../../../lock/time.ts";
import { type DynamodbContext, type StockItem, stockKey, toStock } from "./items.ts";

/**
 * Asks the other clients of a sku to wait for `span`, and refuses their plans that are under way. Resolves to the stock
 * after that, and to undefined for an unknown sku.
 *
 * Otherwise a client that commits once per round trip is always first: the plan of another client is a round trip old when
 * it arrives.
 */
export async function askForTurn(
  { dynamodb }: DynamodbContext,
  sku: string,
  span: Millis,
  signal: AbortSignal,
): Promise<StockItem | undefined> {
  const values = { span: Math.ceil(Math.min(span, LONGEST_TURN)) };
  const exists = "attribute_exists(#pk)";
  const ask = { key: stockKey(sku), update: "ADD #turn :span", when: exists, values };
  const { items } = await dynamodb.write([ask], signal).catch((error) => {
    throw withoutEffect(dynamodb.address, error);
  });
  return items[0] && toStock(items[0]);
}

/** Returns how long other clients have asked to wait since `before`. Their turn ends when one of them changes the stock. */
export function turnAskedFor(before: StockItem | undefined, now: StockItem | undefined): Millis {
  if (!before || before.seq !== now?.seq) return 0;
  return Math.min(now.turn - before.turn, LONGEST_TURN);
}
