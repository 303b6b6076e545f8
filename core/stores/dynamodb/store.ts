import type { Transaction } from "../../database/sql.ts";
import type { StockEventOptions } from "../../inventory/events.ts";
import type { Journal } from "../../journal/journal.ts";
import { checkOpening } from "../../lock/checks.ts";
import { type OpenStore, openLockStore } from "../../lock/open-store.ts";
import { checkOptionNames, type OptionNames } from "../../lock/options.ts";
import type { StoreOptions } from "../../lock/store.ts";
import { STORE_OPTIONS } from "../options.ts";
import type { TransactionalInventory } from "../transactional-inventory.ts";
import { dynamodbClient } from "./client/client.ts";
import type { Dynamodb, DynamodbOptions, TransactWriteItem } from "./client/dynamodb.ts";
import { type DynamodbTable, dynamodbTable } from "./client/table.ts";
import { dynamodbInventory } from "./inventory/index.ts";
import { dynamodbJournal } from "./journal/index.ts";
import { dynamodbLocks } from "./locks/index.ts";
import { writeWithin } from "./own-items.ts";

export interface DynamodbStoreOptions extends StoreOptions, StockEventOptions {}

export interface DynamodbStore extends OpenStore {
  readonly inventory: TransactionalInventory;
  readonly journal: Journal;

  /**
   * Adds a write of an item of your own to the transaction of a step: `await shop.write(tx, { Put: … })`. It is executed
   * with the step's record, or not at all. If its condition does not hold then, the attempt fails with the code
   * TRANSACTION_REFUSED, and is retried as the step's `retry` says. Rejects with a TypeError for anything but one operation.
   */
  write(tx: Pick<Transaction, "batch">, item: TransactWriteItem): Promise<void>;

  /**
   * For items of your own.
   *
   * @internal
   */
  readonly dynamodb: Dynamodb;

  /** Makes the table. */
  readonly table: DynamodbTable;
}

const CONNECTION_OPTIONS = {
  region: true,
  table: true,
  endpoint: true,
  credentials: true,
  timeout: true,
  fetch: true,
} satisfies OptionNames<DynamodbOptions>;

/**
 * Opens a table of DynamoDB with nothing but Web APIs.
 *
 *     const credentials = { accessKeyId: "AKIA…", secretAccessKey: "…" };
 *     await using shop = dynamodbStore({ region: "eu-west-1", table: "shop", credentials });
 */
export function dynamodbStore(
  connection: DynamodbOptions,
  given: DynamodbStoreOptions = {},
): DynamodbStore {
  checkOpening("dynamodbStore", connection, '{ region: "eu-west-1", table: "shop", credentials }');
  checkOptionNames("dynamodb", connection, CONNECTION_OPTIONS);
  checkOptionNames("openDynamodb", given, STORE_OPTIONS);
  const { onStockEvent: onEvent, ...options } = given;
  const dynamodb = dynamodbClient(connection);
  return openLockStore({
    locks: dynamodbLocks(dynamodb, { ...options, closeDynamodb: true }),
    inventory: dynamodbInventory(dynamodb, { onEvent }),
    journal: dynamodbJournal(dynamodb),
    write: writeWithin,
    dynamodb,
    table: dynamodbTable(dynamodb, connection.table),
  });
}
