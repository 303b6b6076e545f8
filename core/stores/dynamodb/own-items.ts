import type { Transaction } from "../../database/sql.ts";
import { transactionRefused } from "../../journal/journal.ts";
import { OPERATIONS, type TransactWriteItem } from "./client/dynamodb.ts";
import { itemTransaction, type Part } from "./client/transaction.ts";

/**
 * Adds a write of a user's own item to a step's transaction, which is executed with the step's record or not at all.
 *
 * Rejects with a TypeError for anything but one operation.
 */
export async function writeWithin(
  tx: Pick<Transaction, "batch">,
  item: TransactWriteItem,
): Promise<void> {
  const transaction = itemTransaction(tx);
  checkItem(item);
  await transaction.inTurn(async () => {
    transaction.part(`own/${transaction.parts.length}`, () => ownPart(item));
  });
}

function ownPart(item: TransactWriteItem): Part {
  return {
    writes: () => [{ item }],
    refused() {
      throw refusedItem(item);
    },
  };
}

/** Returns the error for an item whose condition does not hold. */
export function refusedItem(item: TransactWriteItem): Error {
  return transactionRefused(`the condition of ${describe(item)} did not hold`);
}

/** Throws a TypeError for anything but one operation. */
export function checkItem(item: unknown): asserts item is TransactWriteItem {
  const names = typeof item === "object" && item !== null ? Object.keys(item) : [];
  const [name] = names;
  if (names.length !== 1 || !OPERATIONS.includes(name as (typeof OPERATIONS)[number])) {
    throw new TypeError(
      `an item has one of ${OPERATIONS.join(", ")}, as in TransactWriteItems of DynamoDB's API`,
    );
  }
}

function describe(item: TransactWriteItem): string {
  const [[operation = "", request] = []] = Object.entries(item);
  const { TableName = "a table" } = (request ?? {}) as { readonly TableName?: string };
  return `${operation} on ${TableName}`;
}
