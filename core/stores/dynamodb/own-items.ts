import type { Transaction } from "../../database/sql.ts";
import { ConditionFailedError } from "../../journal/journal.ts";
import { OPERATIONS, type TransactWriteItem } from "./client/dynamodb.ts";
import { itemTransaction, type Part } from "./client/transaction.ts";

/** The items of a user in a step's transaction. */
export interface OwnItems {
  /**
   * Adds a write, which is carried out with the step's record, or not at all. If its condition does not hold then, the
   * step's attempt fails with a {@link ConditionFailedError}, and is retried as the step's `retry` says.
   *
   * Rejects with a TypeError for anything but one operation.
   */
  write(item: TransactWriteItem): Promise<void>;
}

/** Makes writes of a user's own items a part of a step's transaction. */
export function ownItems(tx: Pick<Transaction, "batch">): OwnItems {
  const transaction = itemTransaction(tx);
  return {
    async write(item) {
      checkItem(item);
      await transaction.inTurn(async () => {
        const name = `own/${transaction.parts.length}`;
        transaction.part(name, () => ownPart(item));
      });
    },
  };
}

function ownPart(item: TransactWriteItem): Part {
  return {
    writes: () => [{ item }],
    refused() {
      throw new ConditionFailedError(`the condition of ${describe(item)} did not hold`);
    },
  };
}

function checkItem(item: TransactWriteItem): void {
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
