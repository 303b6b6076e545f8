/** Locks, stock and runs in DynamoDB. */

import { checkOpening } from "../../lock/checks.ts";
import { environmentKeys } from "../environment-keys.ts";
import { nodeFetch } from "../node-fetch.ts";
import type { DynamodbOptions } from "./client/dynamodb.ts";
import { type DynamodbStore, type DynamodbStoreOptions, dynamodbStore } from "./store.ts";

export type { TransactionalInventory } from "../transactional-inventory.ts";
export type { DynamodbTable } from "./client/table.ts";
export type { DynamodbStore } from "./store.ts";

/**
 * Opens a table of DynamoDB. Connects on first use, and needs no package.
 *
 *     await using shop = await openDynamodb({ region: "eu-west-1", table: "shop" });
 *
 * By default the credentials are those of the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN. A
 * provider of the AWS SDK, such as `fromNodeProviderChain()`, finds them anywhere else.
 */
export async function openDynamodb(
  table: Omit<DynamodbOptions, "credentials"> & Partial<Pick<DynamodbOptions, "credentials">>,
  options: DynamodbStoreOptions = {},
): Promise<DynamodbStore> {
  checkOpening("openDynamodb", table, '{ region: "eu-west-1", table: "shop" }');
  const { credentials = environmentKeys, endpoint, ...connection } = table;
  const fetch = nodeFetch(endpoint?.startsWith("http:") ? undefined : {});
  const plain = { fetch, credentials, ...connection, ...(endpoint !== undefined && { endpoint }) };
  return dynamodbStore(plain, options);
}
