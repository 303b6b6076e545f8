import { type OpenStore, openStore } from "../../lock/open-store.ts";
import type { StoreOptions } from "../../lock/store.ts";
import { dynamodbClient } from "./client/client.ts";
import type { DynamodbOptions } from "./client/dynamodb.ts";
import { type DynamodbTable, dynamodbTable } from "./client/table.ts";
import { dynamodbLocks } from "./locks/index.ts";

export interface DynamodbStore extends OpenStore {
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
  options: StoreOptions = {},
): DynamodbStore {
  const dynamodb = dynamodbClient(connection);
  return openStore({
    locks: dynamodbLocks(dynamodb, { ...options, closeDynamodb: true }),
    table: dynamodbTable(dynamodb, connection.table),
  });
}
