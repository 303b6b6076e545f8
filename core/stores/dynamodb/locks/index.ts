import type { LockStore } from "../../../lock/lock.ts";
import { pollingStore, type StoreOptions } from "../../../lock/store.ts";
import type { Millis } from "../../../lock/time.ts";
import type { Dynamodb } from "../client/dynamodb.ts";
import { DynamodbClaims } from "./claims.ts";

interface DynamodbLocksOptions extends StoreOptions {
  /** How long a client goes by the generation that it has read. The same for all clients of a table. */
  readonly generationLife?: Millis;

  /** Whether `close` closes the client as well. Default false. */
  readonly closeDynamodb?: boolean;
}

/** A request more than two for a lock, in this time; and half of what raise-generation takes. */
const GENERATION_LIFE: Millis = 15_000;

/** Locks in a table of DynamoDB: a conditional update takes a lock, and another one releases it. */
export function dynamodbLocks(
  dynamodb: Dynamodb,
  {
    generationLife = GENERATION_LIFE,
    closeDynamodb = false,
    ...options
  }: DynamodbLocksOptions = {},
): LockStore {
  return pollingStore(new DynamodbClaims(dynamodb, generationLife, closeDynamodb), options);
}
