import { AwsV4Signer } from "aws4fetch";
import { deadline, noAnswer, race, sleep } from "../../../lock/abort.ts";
import { toMillis } from "../../../lock/duration.ts";
import { quote, StoreClosedError } from "../../../lock/errors.ts";
import { type Backoff, backoff, retry } from "../../../lock/retry.ts";
import { LONGEST_CALL, type Millis } from "../../../lock/time.ts";
import { keysOf } from "../../aws-keys.ts";
import { type Fetch, runtimeFetch, whyFetchFailed } from "../../fetch.ts";
import type {
  Dynamodb,
  DynamodbOptions,
  ItemsRead,
  ItemWrite,
  Range,
  Reading,
  TableOperation,
  TransactWrite,
  Written,
} from "./dynamodb.ts";
import { RequestFailure, toError, toFailure } from "./failure.ts";
import {
  type Attributes,
  type Item,
  type ItemKey,
  placeholders,
  toAttributes,
  toItem,
} from "./items.ts";

/** Makes a client for runtimes with nothing but `fetch`: each call is a signed request of its own. */
export function dynamodbClient(options: DynamodbOptions): Dynamodb {
  return new Client(options);
}

/** The pauses after a request that was throttled, or that conflicted with a transaction. */
const PASSING: Backoff = { base: 20, factor: 2, max: 1_000, jitter: "full" };

const CONTENT_TYPE = "application/x-amz-json-1.0";

class Client implements Dynamodb {
  readonly address: string;
  readonly #table: string;
  readonly #region: string;
  readonly #endpoint: string;
  readonly #credentials: DynamodbOptions["credentials"];
  readonly #timeout: Millis;
  readonly #fetch: Fetch;
  readonly #closing = new AbortController();

  /** The signing keys of the day. */
  readonly #signingKeys = new Map<string, ArrayBuffer>();

  constructor(options: DynamodbOptions) {
    const { region, table, credentials, timeout = 2_000, fetch = runtimeFetch } = options;
    checkRegion(region);
    checkTable(table);
    this.#endpoint = toEndpoint(options);
    this.address = `table ${table} of dynamodb at ${new URL(this.#endpoint).host}`;
    this.#table = table;
    this.#region = region;
    this.#credentials = credentials;
    this.#timeout = toMillis("timeout", timeout, 1, LONGEST_CALL);
    this.#fetch = fetch;
  }

  async get(key: ItemKey, signal?: AbortSignal): Promise<Item | undefined> {
    const { items } = await this.read([key], signal);
    return items[0];
  }

  async read(keys: readonly ItemKey[], signal?: AbortSignal): Promise<ItemsRead> {
    const [only] = keys;
    if (!only || keys.length > 1) return this.#readMany(keys, signal);
    const body = { TableName: this.#table, Key: toAttributes({ ...only }), ConsistentRead: true };
    const { answer, time } = await this.#call<GetAnswer>("GetItem", body, { signal });
    return { items: [answer.Item && toItem(answer.Item)], time };
  }

  async write(writes: readonly TransactWrite[], signal?: AbortSignal): Promise<Written> {
    const [only] = writes;
    return only && "key" in only && only.update !== undefined && writes.length === 1
      ? this.#update(only, signal)
      : this.#transact(writes, signal);
  }

  async *query({ pk, from, to, descending = false, limit, signal }: Range) {
    const condition = "#pk = :pk AND #sk BETWEEN :from AND :to";
    const reading = {
      ConsistentRead: true,
      KeyConditionExpression: condition,
      ScanIndexForward: !descending,
      Limit: limit,
      ...placeholders({ pk, from, to }, condition),
    };
    yield* this.#pages("Query", reading, signal);
  }

  async *scan({ filter, values, signal }: Reading): AsyncGenerator<readonly Item[]> {
    const reading = {
      ConsistentRead: true,
      FilterExpression: filter,
      ...placeholders(values, filter),
    };
    for await (const { items } of this.#pages("Scan", reading, signal)) yield items;
  }

  async manage(operation: TableOperation, body: object): Promise<unknown> {
    const named = { TableName: this.#table, ...body };
    const reads = operation === "DescribeTable";
    return (await this.#call(operation, named, { reads, timeout: LONGEST_CALL })).answer;
  }

  async close(): Promise<void> {
    this.#closing.abort(new StoreClosedError());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async *#pages(operation: "Query" | "Scan", reading: object, signal: AbortSignal | undefined) {
    let next: Attributes | undefined;
    do {
      const from = { TableName: this.#table, ...(next && { ExclusiveStartKey: next }) };
      const body = { ...reading, ...from };
      const { answer, time }: Answered<Page> = await this.#call(operation, body, { signal });
      yield { items: answer.Items.map(toItem), time };
      next = answer.LastEvaluatedKey;
    } while (next);
  }

  /** DynamoDB answers with fewer items than it was asked for when it is short of capacity. */
  async #readMany(keys: readonly ItemKey[], signal: AbortSignal | undefined): Promise<ItemsRead> {
    const found = new Map<string, Item>();
    // DynamoDB refuses a key that is named twice.
    const named = new Map(keys.map((key) => [`${key.pk}\0${key.sk}`, key]));
    let wanted: object = {
      Keys: [...named.values()].map((key) => toAttributes({ ...key })),
      ConsistentRead: true,
    };
    for (let count = 0; ; count += 1) {
      const body = { RequestItems: { [this.#table]: wanted } };
      const { answer, time } = await this.#call<BatchAnswer>("BatchGetItem", body, { signal });
      for (const attributes of answer.Responses[this.#table] ?? []) {
        const item = toItem(attributes);
        found.set(`${item.pk}\0${item.sk}`, item);
      }
      const rest = answer.UnprocessedKeys?.[this.#table];
      if (!rest) return { items: keys.map(({ pk, sk }) => found.get(`${pk}\0${sk}`)), time };
      wanted = { ...rest, ConsistentRead: true };
      await sleep(backoff(count, PASSING), signal);
    }
  }

  async #update(write: ItemWrite, signal: AbortSignal | undefined): Promise<Written> {
    const body = { TableName: this.#table, ...toRequest(write), ReturnValues: "ALL_NEW" };
    const sent = { signal, reads: false };
    const { answer } = await this.#call<UpdatedItem>("UpdateItem", body, sent);
    const { Attributes = answer.Item } = answer;
    const done = answer.__type === undefined;
    return { done, failed: [!done], items: [Attributes && toItem(Attributes)] };
  }

  async #transact(
    writes: readonly TransactWrite[],
    signal: AbortSignal | undefined,
  ): Promise<Written> {
    const TransactItems = writes.map((write) =>
      "item" in write
        ? write.item
        : {
            [write.update === undefined ? "Delete" : "Update"]: {
              TableName: this.#table,
              ...toRequest(write),
            },
          },
    );
    const sent = { signal, reads: false };
    const body = { TransactItems };
    const { answer } = await this.#call<TransactAnswer>("TransactWriteItems", body, sent);
    const reasons = writes.map((_, i) => answer.CancellationReasons?.[i] ?? {});
    return {
      done: answer.__type === undefined,
      failed: reasons.map(({ Code }) => Code === UNMET),
      items: reasons.map(({ Item }) => Item && toItem(Item)),
    };
  }

  async #call<Answer>(
    operation: string,
    body: object,
    { signal, reads = true, timeout = this.#timeout }: Sent,
  ): Promise<Answered<Answer>> {
    using limit = deadline(LONGEST_CALL, noAnswer, signal, this.#closing.signal);
    const text = JSON.stringify(body);
    const pauseAfter = (error: unknown, count: number) =>
      isPassing(error) ? backoff(count, PASSING) : undefined;
    let last: unknown;
    const attempt = async () => {
      try {
        return await this.#request(operation, text, timeout, limit.signal);
      } catch (error) {
        // An attempt that the end of the time has cut off tells less than the one before it.
        const isCutOff = limit.signal.aborted && (reads || isPassing(error));
        if (last === undefined || !isCutOff) last = error;
        throw error;
      }
    };
    try {
      return (await retry(attempt, pauseAfter, limit.signal)) as Answered<Answer>;
    } catch {
      throw this.#toError(last as RequestFailure, reads);
    }
  }

  #toError(failure: RequestFailure, reads: boolean): unknown {
    const { aborted, reason } = this.#closing.signal;
    if (aborted && (reads || failure.kind !== "unanswered")) return reason;
    return toError(this.address, failure, reads);
  }

  /** Rejects with a RequestFailure. */
  async #request(
    operation: string,
    body: string,
    timeout: Millis,
    caller: AbortSignal,
  ): Promise<Answered<object>> {
    using limit = deadline(timeout, noAnswer, caller);
    const { signal } = limit;
    const late = () => new RequestFailure("passing", "credentials or signature came too late");
    const signed = await race(this.#sign(operation, body), signal).catch((error) => {
      if (error === signal.reason) throw late();
      const why = `no credentials: ${(error as Error).message}`;
      throw new RequestFailure("unsent", why, "NoCredentials");
    });
    if (signal.aborted) throw late();
    try {
      // Not another address: the answer to a redirected request would not be the table's.
      const request = { method: "POST", body, redirect: "manual", signal } as const;
      const { time, ...answer } = await this.#post({ ...request, headers: signed });
      return { answer: toAnswer(answer), time };
    } catch (error) {
      throw toRequestFailure(error, signal);
    }
  }

  async #post(request: Parameters<Fetch>[1]) {
    const answer = await this.#fetch(this.#endpoint, request);
    const { status, headers } = answer;
    const isOwn =
      headers.get("x-amzn-requestid") !== null || headers.get("content-type") === CONTENT_TYPE;
    const time = Date.parse(headers.get("date") ?? "");
    return { status, text: await answer.text(), isOwn, time };
  }

  /** Returns the headers of the signed request. */
  async #sign(operation: string, body: string): Promise<Readonly<Record<string, string>>> {
    const { accessKeyId, secretAccessKey, sessionToken } = await keysOf(this.#credentials);
    const signer = new AwsV4Signer({
      method: "POST",
      url: this.#endpoint,
      headers: {
        "content-type": CONTENT_TYPE,
        "x-amz-target": `DynamoDB_20120810.${operation}`,
      },
      body,
      accessKeyId,
      secretAccessKey,
      ...(sessionToken && { sessionToken }),
      service: "dynamodb",
      region: this.#region,
      cache: this.#signingKeys,
    });
    const { headers } = await signer.sign();
    return Object.fromEntries(headers);
  }
}

function isPassing(error: unknown): boolean {
  return error instanceof RequestFailure && error.kind === "passing";
}

interface Sent {
  readonly signal?: AbortSignal | undefined;

  /** Whether the request changes nothing. Default true. */
  readonly reads?: boolean;

  /** Default: the client's. */
  readonly timeout?: Millis;
}

interface Answered<Answer> {
  readonly answer: Answer;

  /** The header Date: the server's clock, in whole seconds. */
  readonly time: number;
}

interface GetAnswer {
  readonly Item?: Attributes;
}

interface BatchAnswer {
  readonly Responses: Readonly<Record<string, readonly Attributes[]>>;
  readonly UnprocessedKeys?: Readonly<Record<string, object>>;
}

interface Page {
  readonly Items: readonly Attributes[];
  readonly LastEvaluatedKey?: Attributes;
}

/** The exception when a condition does not hold, with the item as it is. */
interface Unmet {
  readonly __type?: string;
  readonly Item?: Attributes;
}

interface UpdatedItem extends Unmet {
  readonly Attributes?: Attributes;
}

interface TransactAnswer extends Unmet {
  readonly CancellationReasons?: readonly { readonly Code?: string; readonly Item?: Attributes }[];
}

/** The code of a condition that does not hold, among the reasons of a cancelled transaction. */
const UNMET = "ConditionalCheckFailed";

function toRequest({ key, update, when, values }: ItemWrite) {
  return {
    Key: toAttributes({ ...key }),
    ...(update && { UpdateExpression: update }),
    ...(when && { ConditionExpression: when, ReturnValuesOnConditionCheckFailure: "ALL_OLD" }),
    ...placeholders(values, update ?? "", when ?? ""),
  };
}

interface HttpAnswer {
  readonly status: number;
  readonly text: string;

  /** Whether it is DynamoDB's: a proxy's page for users may be JSON, too. */
  readonly isOwn: boolean;
}

/** Returns the answer, also of a condition that failed. Throws an error for any other failure. */
function toAnswer({ status, text, isOwn }: HttpAnswer): object {
  const body = parse(text);
  if (status === 200 && isOwn && body) return body;
  const { __type = "", message, Message, CancellationReasons: reasons = [] } = body ?? {};
  const code = __type.slice(__type.indexOf("#") + 1);
  const isUnmet = reasons.some(({ Code }) => Code === UNMET);
  const problem = message ?? Message ?? quote(text.trim());
  const failure = toFailure({ status, code, message: problem, reasons });
  // Beside a conflict, a reason None does not tell that its condition holds.
  const isPassing = failure.kind === "passing";
  if (body && !isPassing && (code === "ConditionalCheckFailedException" || isUnmet)) return body;
  throw failure;
}

interface ErrorBody extends TransactAnswer {
  readonly message?: string;
  readonly Message?: string;
}

function parse(text: string): ErrorBody | undefined {
  try {
    const json: unknown = JSON.parse(text);
    return typeof json === "object" && json !== null ? json : undefined;
  } catch {
    return undefined;
  }
}

function toRequestFailure(error: unknown, signal: AbortSignal): RequestFailure {
  if (error instanceof RequestFailure) return error;
  if (signal.aborted) return new RequestFailure("unanswered", noAnswer().message);
  const { message, isUntrusted, isUnsent } = whyFetchFailed(error);
  if (isUntrusted) return new RequestFailure("refused", message);
  return new RequestFailure(isUnsent ? "unsent" : "unanswered", message);
}

function toEndpoint({ region, endpoint }: DynamodbOptions): string {
  const domain = region.startsWith("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  const url = URL.parse(endpoint ?? `https://dynamodb.${region}.${domain}`);
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== "" || url.search !== "") {
    throw new TypeError(
      'the endpoint of DynamoDB must be like "https://HOST", without user and query',
    );
  }
  return url.href;
}

function checkRegion(region: unknown): void {
  if (typeof region === "string" && /^[a-z0-9-]{1,64}$/.test(region)) return;
  throw new TypeError(`region must be a region of AWS such as "eu-west-1"`);
}

/** The rules of DynamoDB for the names of tables. */
function checkTable(table: unknown): void {
  if (typeof table === "string" && /^[\w.-]{3,255}$/.test(table)) return;
  throw new TypeError("table must be 3 to 255 characters of a to z, A to Z, 0 to 9, _, - and .");
}
