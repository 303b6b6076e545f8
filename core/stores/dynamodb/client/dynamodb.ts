import type { Duration } from "../../../lock/duration.ts";
import type { Fetch } from "../../fetch.ts";
import type { Expressions, Item, ItemKey } from "./items.ts";

export interface DynamodbOptions {
  readonly region: string;
  readonly table: string;

  /** Where the requests are posted to. Default: the region's endpoint of AWS. */
  readonly endpoint?: string;

  /** The keys that sign the requests, or a function that returns them, such as a provider of the AWS SDK. */
  readonly credentials: AwsCredentials | (() => Promise<AwsCredentials>);

  /** The longest wait for one answer. Default 2 s. */
  readonly timeout?: Duration;

  /** Replaces the runtime's `fetch`. */
  readonly fetch?: Fetch;
}

export interface AwsCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

/** A change of one item, if its condition holds. */
export interface ItemUpdate extends Expressions {
  readonly key: ItemKey;

  /** The update expression: "SET #owner = :owner ADD #token :one". */
  readonly update: string;

  /** The condition expression. */
  readonly when: string;
}

/** The outcome of conditional writes: a condition that does not hold is no error. */
export interface Written {
  readonly done: boolean;

  /**
   * For each write its item. After one write: as it is now. After several writes: undefined. Not done: the items whose
   * condition does not hold, as they are; undefined for the others, and for items that do not exist.
   */
  readonly items: readonly (Item | undefined)[];
}

export interface Reading {
  /** The condition for items in the answer. */
  readonly filter: string;
  readonly values: Expressions["values"];
  readonly signal?: AbortSignal | undefined;
}

/**
 * One table of DynamoDB. All reads are strongly consistent.
 *
 * Requests that are throttled, or conflict with a transaction, are sent again for up to 10 s. No other request is sent
 * twice. Rejects with a StoreUnavailableError or a StoreRefusedError only when nothing has been changed.
 */
export interface Dynamodb extends AsyncDisposable {
  /** Region, table and endpoint, for messages. */
  readonly address: string;
  get(key: ItemKey, signal?: AbortSignal): Promise<Item | undefined>;

  /** Changes all items, at most 100, or none. */
  write(updates: readonly ItemUpdate[], signal?: AbortSignal): Promise<Written>;

  /** Reads the whole table, page by page. */
  scan(reading: Reading): AsyncGenerator<readonly Item[]>;

  /** Calls an operation on the table itself. */
  manage(operation: TableOperation, body: object): Promise<unknown>;
  close(): Promise<void>;
}

export type TableOperation =
  | "CreateTable"
  | "DescribeTable"
  | "UpdateContinuousBackups"
  | "UpdateTimeToLive";
