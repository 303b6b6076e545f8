import { randomUUID } from "node:crypto";
import { inject } from "vitest";
import { dynamodbClient } from "../../core/stores/dynamodb/client/client.ts";
import type { Dynamodb, DynamodbOptions } from "../../core/stores/dynamodb/client/dynamodb.ts";
import { dynamodbTable } from "../../core/stores/dynamodb/client/table.ts";
import type { Fetch } from "../../core/stores/fetch.ts";
import { nodeFetch } from "../../core/stores/node-fetch.ts";

/** DynamoDB Local accepts any. */
const CREDENTIALS = { accessKeyId: "key", secretAccessKey: "secret" };

export function dynamodbPort(): number {
  return inject("dynamodbServers")[0]?.port ?? 0;
}

/** The longest wait for an answer of the shared server, which other tests keep busy. */
const PATIENCE = 9_000;

/** A new table on the shared server. */
export interface TestTable {
  readonly name: string;
  readonly url: string;

  /** Opens a client, by default without a proxy between it and the server, and then patient. */
  open(options?: Partial<DynamodbOptions> & { readonly port?: number }): Dynamodb;
}

export async function anyTable(): Promise<TestTable> {
  const table = `test-${randomUUID()}`;
  const region = "local";
  const shared = dynamodbPort();
  const open: TestTable["open"] = ({ port, ...options } = {}) =>
    dynamodbClient({
      region,
      table,
      endpoint: `http://127.0.0.1:${port ?? shared}`,
      credentials: CREDENTIALS,
      fetch: nodeFetch(),
      ...(port === undefined && { timeout: PATIENCE }),
      ...options,
    });
  await using admin = open();
  await dynamodbTable(admin, table).create();
  return {
    name: table,
    url: `dynamodb://key:secret@${region}/${table}?endpoint=http://127.0.0.1:${shared}`,
    open,
  };
}

/** What happens to a request; undefined lets it pass. */
export type RequestFault = (
  operation: string,
  pass: () => ReturnType<Fetch>,
  body: string,
) => ReturnType<Fetch> | undefined;

/** Opens a client that notes the operations of its requests, with a fault between it and the server. */
export function watch(
  table: TestTable,
  fault: RequestFault = () => undefined,
  options?: Partial<DynamodbOptions>,
) {
  const requests: string[] = [];
  const send = nodeFetch();
  const fetch: Fetch = (url, request) => {
    const operation = request.headers["x-amz-target"]?.split(".")[1] ?? "";
    requests.push(operation);
    // What has been sent arrives, also when its sender has given up.
    const pass = () => send(url, { ...request, signal: new AbortController().signal });
    return fault(operation, pass, request.body) ?? send(url, request);
  };
  return { dynamodb: table.open({ ...options, fetch }), requests };
}

/** Passes a request and loses its answer. */
export async function loseAnswer(pass: () => ReturnType<Fetch>): Promise<never> {
  await (await pass()).text();
  throw new Error("the answer is lost");
}
