import { randomUUID } from "node:crypto";
import { AwsV4Signer } from "aws4fetch";
import { stockLock } from "../../core/inventory/inventory.ts";
import { openDynamodb } from "../../core/stores/dynamodb/index.ts";
import { startServer } from "../../infra/servers/start.ts";
import type { Contender } from "./measure.ts";
import { rate } from "./sql.ts";
import type { Suite } from "./suite.ts";

const CREDENTIALS = { accessKeyId: "key", secretAccessKey: "secret" };
const TABLE = "bench";

/** The orders of one `decrementMany`: as many as one transaction takes. */
const BATCH = 96;

/** Locks and stock on DynamoDB Local beside the bare requests that they are made of. */
export const dynamodbSuite: Suite = async (onProgress) => {
  const server = await startServer("dynamodb", { onProgress });
  const endpoint = new URL(server.url).searchParams.get("endpoint") ?? "";
  const connection = { region: "local", table: TABLE, endpoint, credentials: CREDENTIALS };
  const { locks, inventory, table, close } = await openDynamodb(connection);
  await table.create();
  const raw = bareRequests(endpoint);
  const sku = "teapot";
  await inventory.set({ sku, quantity: 1_000_000, operationId: randomUUID() });
  await raw.update("stock", { set: "SET quantity = :n", values: { ":n": { N: "1000000" } } });
  const { fence } = await locks.lock(stockLock(sku), { ttl: 86_400_000, wait: 0, renew: false });
  const order = () => ({ operationId: randomUUID(), quantity: 1 });
  const one = { ":one": { N: "1" } };
  const sell = { set: "SET quantity = quantity - :one", when: "quantity >= :one", values: one };

  const contenders: Contender[] = [
    {
      name: PAIR,
      async run() {
        const values = { ":owner": { S: randomUUID() } };
        const take = "SET #owner = :owner ADD fence :one";
        const isFree = "attribute_not_exists(#owner)";
        await raw.update("lock", { set: take, when: isFree, values: { ...values, ...one } });
        await raw.update("lock", { set: "REMOVE #owner", when: "#owner = :owner", values });
      },
    },
    {
      name: "acquire + release",
      async run() {
        await (await locks.lock("bench", { ttl: 60_000, wait: 0 })).unlock();
      },
    },
    { name: UPDATE, run: () => raw.update("stock", sell) },
    {
      name: TRANSACTION,
      run: () => raw.transact([sell, ...Array.from({ length: 3 }, () => undefined)]),
    },
    {
      name: "fenced decrement",
      run: () => inventory.decrement({ sku, fence, ...order() }),
    },
    {
      name: `decrementMany of ${BATCH}`,
      batch: BATCH,
      run: () =>
        inventory.decrementMany({ sku, fence, orders: Array.from({ length: BATCH }, order) }),
    },
  ];
  return {
    server: server.version,
    contenders,
    comparisons: [
      {
        name: `time of acquire + release over ${PAIR}`,
        of: "acquire + release",
        over: PAIR,
        by: "time",
        aim: 1.2,
      },
      rate("fenced decrement", UPDATE, 0.3),
      rate("fenced decrement", TRANSACTION, 0.8),
      rate(`decrementMany of ${BATCH}`, UPDATE, 5),
    ],
    async close() {
      await close();
      await server.stop();
    },
  };
};

const PAIR = "bare UpdateItem of owner and token, and one that removes the owner";
const UPDATE = "bare conditional UpdateItem";
const TRANSACTION = "bare TransactWriteItems of a conditional update and three new items";

interface Update {
  readonly set: string;
  readonly when?: string;
  readonly values: object;
}

/** Signed requests without any library but the one that signs, as a handler without Lockstep would send them. */
function bareRequests(endpoint: string) {
  const cache = new Map<string, ArrayBuffer>();
  const send = async (operation: string, body: object) => {
    const signer = new AwsV4Signer({
      ...{
        ...CREDENTIALS,
        method: "POST",
        url: endpoint,
        service: "dynamodb",
        region: "local",
        cache,
      },
      body: JSON.stringify(body),
      headers: {
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": `DynamoDB_20120810.${operation}`,
      },
    });
    const { method, url, headers, body: signed } = await signer.sign();
    const answer = await fetch(url, { method, headers, body: signed });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${operation}: ${text}`);
  };
  const item = (id: string) => ({ pk: { S: `bare/${id}` }, sk: { S: "bare" } });
  const toUpdate = (id: string, { set, when, values }: Update) => ({
    ...{ TableName: TABLE, Key: item(id), UpdateExpression: set },
    ...(when && { ConditionExpression: when }),
    ...(set.includes("#owner") && { ExpressionAttributeNames: { "#owner": "owner" } }),
    ExpressionAttributeValues: values,
  });
  return {
    update: (id: string, update: Update) => send("UpdateItem", toUpdate(id, update)),

    /** Updates the stock, and puts a new item for each undefined. */
    transact: (writes: readonly (Update | undefined)[]) =>
      send("TransactWriteItems", {
        TransactItems: writes.map((update) =>
          update
            ? { Update: toUpdate("stock", update) }
            : { Put: { TableName: TABLE, Item: item(randomUUID()) } },
        ),
      }),
  };
}
