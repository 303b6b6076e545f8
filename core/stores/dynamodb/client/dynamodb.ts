import type { Duration } from "../../../lock/duration.ts";
import type { AwsKeys } from "../../aws-keys.ts";
import type { Fetch } from "../../fetch.ts";
import type { Expressions, Item, ItemKey } from "./items.ts";

export interface DynamodbOptions {
  readonly region: string;
  readonly table: string;

  /** Where the requests are posted to. Default: the region's endpoint of AWS. */
  readonly endpoint?: string;

  /** The keys that sign the requests, or a function that returns them, such as a provider of the AWS SDK. */
  readonly credentials: AwsKeys;

  /** The longest wait for one answer, at most 10 s. Requests about the table itself always have 10 s. Default 2 s. */
  readonly timeout?: Duration;

  /** Replaces the runtime's `fetch`. */
  readonly fetch?: Fetch;
}

/** A change of one item, if its condition holds. */
export interface ItemWrite extends Expressions {
  readonly key: ItemKey;

  /** The update expression: "SET #owner = :owner ADD #token :one". Without one, the item is deleted. */
  readonly update?: string;

  /** The condition expression. Default: none. */
  readonly when?: string;
}

/**
 * A write of TransactWriteItems in the form of DynamoDB's API reference, on any table of the region:
 * `{ Put: { TableName: "orders", Item: { id: { S: "7" } } } }`. Binary values are texts in base64.
 */
export type TransactWriteItem = {
  readonly [operation in (typeof OPERATIONS)[number]]?: object;
};

export const OPERATIONS = ["Put", "Update", "Delete", "ConditionCheck"] as const;

/** A write on this table, or one that a user has put together. */
export type TransactWrite = ItemWrite | { readonly item: TransactWriteItem };

/** The outcome of conditional writes: a condition that does not hold is no error. */
export interface Written {
  readonly done: boolean;

  /** Whether the condition of each write does not hold. */
  readonly failed: readonly boolean[];

  /**
   * For each write its item. After one write: as it is now. After several writes: undefined. Not done: the items whose
   * condition does not hold, as they are; undefined for the others, and for items that do not exist.
   */
  readonly items: readonly (Item | undefined)[];
}

/** The items that were read, and the server's clock at that time, rounded down to a second. */
export interface ItemsRead {
  readonly items: readonly (Item | undefined)[];
  readonly time: number;
}

/** A page of what was read. */
export interface ItemsPage extends ItemsRead {
  readonly items: readonly Item[];
}

/** Items of one partition, in the order of their places. */
export interface Range {
  readonly pk: string;

  /** The first and the last place. */
  readonly from: string;
  readonly to: string;
  readonly descending?: boolean;

  /** The most items of a page. */
  readonly limit: number;
  readonly signal?: AbortSignal;
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

  /** Reads at most 100 items, each for itself: they may be of different moments. */
  read(keys: readonly ItemKey[], signal?: AbortSignal): Promise<ItemsRead>;

  /** Reads a range, page by page. */
  query(range: Range): AsyncGenerator<ItemsPage>;

  /** Changes all items, at most 100, or none. */
  write(writes: readonly TransactWrite[], signal?: AbortSignal): Promise<Written>;

  /** Reads the whole table, page by page. */
  scan(reading: Reading): AsyncGenerator<readonly Item[]>;

  /** Calls an operation on the table itself. */
  manage(operation: TableOperation, body: object): Promise<unknown>;
  close(): Promise<void>;
}

export type TableOperation = "CreateTable" | "DescribeTable" | "UpdateContinuousBackups";
