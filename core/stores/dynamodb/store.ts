import type { Transaction } from "../../database/sql.ts";
import type { StockEventOptions } from "../../inventory/events.ts";
import type { Journal } from "../../journal/journal.ts";
import { type OpenStore, openLockStore } from "../../lock/open-store.ts";
import type { StoreOptions } from "../../lock/store.ts";
import { dynamodbClient } from "./client/client.ts";
import type { Dynamodb, DynamodbOptions } from "./client/dynamodb.ts";
import { type DynamodbTable, dynamodbTable } from "./client/table.ts";
import { type DynamodbInventory, dynamodbInventory } from "./inventory/index.ts";
import { dynamodbJournal } from "./journal/index.ts";
import { dynamodbLocks } from "./locks/index.ts";
import { type OwnItems, ownItems } from "./own-items.ts";

export interface DynamodbStoreOptions extends StoreOptions, StockEventOptions {}

export interface DynamodbStore extends OpenStore {
  readonly inventory: DynamodbInventory;
  readonly journal: Journal;

  /** Makes writes of your own items a part of a step's transaction: `await shop.within(tx).write({ Put: … })`. */
  within(tx: Pick<Transaction, "batch">): OwnItems;

  /**
   * For items of your own.
   *
   * @internal
   */
  readonly dynamodb: Dynamodb;

  /** Makes the table. */
  readonly table: DynamodbTable;
}

/**
 * Opens a table of DynamoDB with nothing but Web APIs.
 *
 *     const credentials = { accessKeyId: "AKIA…", secretAccessKey: "…" };
 *     await using shop = dynamodbStore({ region: "eu-west-1", table: "shop", credentials });
 */
export function dynamodbStore(
  connection: DynamodbOptions,
  { onStockEvent: onEvent, ...options }: DynamodbStoreOptions = {},
): DynamodbStore {
  const dynamodb = dynamodbClient(connection);
  return openLockStore({
    locks: dynamodbLocks(dynamodb, { ...options, closeDynamodb: true }),
    inventory: dynamodbInventory(dynamodb, { onEvent }),
    journal: dynamodbJournal(dynamodb),
    within: ownItems,
    dynamodb,
    table: dynamodbTable(dynamodb, connection.table),
  });
}
