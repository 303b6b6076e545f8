import { AwsV4Signer } from "aws4fetch";
import { deadline, noAnswer, race } from "../../../lock/abort.ts";
import { LONGEST_SPAN } from "../../../lock/checks.ts";
import { toMillis } from "../../../lock/duration.ts";
import { quote, StoreClosedError } from "../../../lock/errors.ts";
import { type Backoff, backoff, retry } from "../../../lock/retry.ts";
import { LONGEST_CALL, type Millis } from "../../../lock/time.ts";
import { type Fetch, runtimeFetch, whyFetchFailed } from "../../fetch.ts";
import type {
  AwsCredentials,
  Dynamodb,
  DynamodbOptions,
  ItemUpdate,
  Reading,
  TableOperation,
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
    this.#timeout = toMillis("timeout", timeout, 1, LONGEST_SPAN);
    this.#fetch = fetch;
  }

  async get(key: ItemKey, signal?: AbortSignal): Promise<Item | undefined> {
    const body = { Key: toAttributes({ ...key }), ConsistentRead: true };
    const { Item } = await this.#call<{ readonly Item?: Attributes }>("GetItem", body, { signal });
    return Item && toItem(Item);
  }

  async write(updates: readonly ItemUpdate[], signal?: AbortSignal): Promise<Written> {
    const [only] = updates;
    return only && updates.length === 1
      ? this.#update(only, signal)
      : this.#transact(updates, signal);
  }

  async *scan({ filter, values, signal }: Reading): AsyncGenerator<readonly Item[]> {
    const reading = {
      ConsistentRead: true,
      FilterExpression: filter,
      ...placeholders(values, filter),
    };
    let next: Attributes | undefined;
    do {
      const body = { ...reading, ...(next && { ExclusiveStartKey: next }) };
      const page: Page = await this.#call("Scan", body, { signal });
      yield page.Items.map(toItem);
      next = page.LastEvaluatedKey;
    } while (next);
  }

  manage(operation: TableOperation, body: object): Promise<unknown> {
    return this.#call(operation, body, { reads: operation === "DescribeTable" });
  }

  async close(): Promise<void> {
    this.#closing.abort(new StoreClosedError());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #update(update: ItemUpdate, signal: AbortSignal | undefined): Promise<Written> {
    const body = { ...toRequest(update), ReturnValues: "ALL_NEW" };
    const sent = { signal, reads: false };
    const answer = await this.#call<UpdateAnswer>("UpdateItem", body, sent);
    const { Attributes = answer.Item } = answer;
    return { done: answer.__type === undefined, items: [Attributes && toItem(Attributes)] };
  }

  async #transact(updates: readonly ItemUpdate[], signal: AbortSignal | undefined) {
    const TransactItems = updates.map((update) => ({
      Update: { TableName: this.#table, ...toRequest(update) },
    }));
    const sent = { signal, reads: false };
    const { CancellationReasons = [], __type } = await this.#call<TransactAnswer>(
      "TransactWriteItems",
      { TransactItems },
      sent,
    );
    const items = updates.map((_, i) => {
      const { Item } = CancellationReasons[i] ?? {};
      return Item && toItem(Item);
    });
    return { done: __type === undefined, items };
  }

  async #call<Answer>(operation: string, body: object, { signal, reads = true }: Sent) {
    using limit = deadline(LONGEST_CALL, noAnswer, signal, this.#closing.signal);
    const named = operation === "TransactWriteItems" ? body : { TableName: this.#table, ...body };
    const text = JSON.stringify(named);
    const pauseAfter = (error: unknown, count: number) =>
      error instanceof RequestFailure && error.kind === "passing"
        ? backoff(count, PASSING)
        : undefined;
    let last: unknown;
    const attempt = async () => {
      try {
        return await this.#request(operation, text, limit.signal);
      } catch (error) {
        last = error;
        throw error;
      }
    };
    try {
      return (await retry(attempt, pauseAfter, limit.signal)) as Answer;
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
  async #request(operation: string, body: string, caller: AbortSignal): Promise<object> {
    using limit = deadline(this.#timeout, noAnswer, caller);
    const { signal } = limit;
    const signed = await race(this.#sign(operation, body), signal).catch((error) => {
      throw new RequestFailure("unsent", `no credentials: ${(error as Error).message}`);
    });
    if (signal.aborted) throw new RequestFailure("unsent", "there was no time for a request");
    try {
      // Not another address: the answer to a redirected request would not be the table's.
      const request = { method: "POST", body, redirect: "manual", signal } as const;
      const { status, text } = await this.#post({ ...request, headers: signed });
      return toAnswer(status, text);
    } catch (error) {
      throw toRequestFailure(error, signal);
    }
  }

  async #post(request: Parameters<Fetch>[1]) {
    const answer = await this.#fetch(this.#endpoint, request);
    return { status: answer.status, text: await answer.text() };
  }

  /** Returns the headers of the signed request. */
  async #sign(operation: string, body: string): Promise<Readonly<Record<string, string>>> {
    const { accessKeyId, secretAccessKey, sessionToken } = await this.#readCredentials();
    const signer = new AwsV4Signer({
      method: "POST",
      url: this.#endpoint,
      headers: {
        "content-type": "application/x-amz-json-1.0",
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

  async #readCredentials(): Promise<AwsCredentials> {
    const given = this.#credentials;
    return typeof given === "function" ? given() : given;
  }
}

interface Sent {
  readonly signal?: AbortSignal | undefined;

  /** Whether the request changes nothing. Default true. */
  readonly reads?: boolean;
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

interface UpdateAnswer extends Unmet {
  readonly Attributes?: Attributes;
}

interface TransactAnswer extends Unmet {
  readonly CancellationReasons?: readonly { readonly Code?: string; readonly Item?: Attributes }[];
}

function toRequest({ key, update, when, values }: ItemUpdate) {
  return {
    Key: toAttributes({ ...key }),
    UpdateExpression: update,
    ConditionExpression: when,
    ReturnValuesOnConditionCheckFailure: "ALL_OLD",
    ...placeholders(values, update, when),
  };
}

/** Returns the answer, also when a condition does not hold. Throws the failure if it is one. */
function toAnswer(status: number, text: string): object {
  const body = parse(text);
  if (status === 200 && body) return body;
  const { __type = "", message, Message, CancellationReasons: reasons = [] } = body ?? {};
  const code = __type.slice(__type.indexOf("#") + 1);
  const isUnmet = reasons.some(({ Code }) => Code === "ConditionalCheckFailed");
  if (body && (code === "ConditionalCheckFailedException" || isUnmet)) return body;
  throw toFailure({ status, code, message: message ?? Message ?? quote(text.trim()), reasons });
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
