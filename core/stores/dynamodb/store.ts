import type { StockEventOptions } from "../../inventory/events.ts";
import type { Inventory } from "../../inventory/inventory.ts";
import type { Journal } from "../../journal/journal.ts";
import { type OpenStore, openLockStore } from "../../lock/open-store.ts";
import type { StoreOptions } from "../../lock/store.ts";
import { dynamodbClient } from "./client/client.ts";
import type { Dynamodb, DynamodbOptions } from "./client/dynamodb.ts";
import { type DynamodbTable, dynamodbTable } from "./client/table.ts";
import { dynamodbInventory } from "./inventory/index.ts";
import { dynamodbJournal } from "./journal/index.ts";
import { dynamodbLocks } from "./locks/index.ts";

export interface DynamodbStoreOptions extends StoreOptions, StockEventOptions {}

export interface DynamodbStore extends OpenStore {
  readonly inventory: Inventory;
  readonly journal: Journal;

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
    dynamodb,
    table: dynamodbTable(dynamodb, connection.table),
  });
}
