import { randomInt, randomUUID } from "node:crypto";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openDynamodb } from "../../core/stores/dynamodb/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { open } from "../../infra/open.ts";
import { temporaryFolder } from "../../infra/servers/reap.ts";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { httpApiEvent } from "../support/lambda.ts";
import { type Bundled, bundled, type ColdFunction, type Loaded } from "./cold-start.ts";
import type { Comparison } from "./measure.ts";
import { installPeers } from "./peers.ts";
import type { Suite } from "./suite.ts";

const EMPTY = "empty handler";
const GATEWAY = "lockedHandler on etcd's gateway";
const GRPC = "lockedHandler on etcd's gRPC";
const CALLS = "bare calls of etcd's gateway";
const DYNAMODB = "lockedHandler on DynamoDB";
const UPDATES = "bare calls of DynamoDB";

const POWERTOOLS = "Powertools idempotency on Redis";

/** The limits of a cold start over that of an empty handler, in milliseconds. */
const MAX_ADDED_MILLIS = { http: 90, queue: 45, stock: 45 };

/** The limits of a lock over the same calls without Lockstep, in milliseconds. */
const MAX_ADDED_BY_LOCK = { etcd: 12, dynamodb: 10 };

/** The limit of core and the etcd gateway client, in bytes. */
const MAX_BYTES = 60_000;

/** The size of functions, and the time from the import to the first answer, in a new process each time. */
export const functionsSuite: Suite = async (onProgress, { alone }) => {
  const etcd = await startServer("etcd", { onProgress });
  const dynamodb = await startServer("dynamodb", { onProgress });
  const redis = await startServer("redis", { onProgress });
  const mysql = await startServer("mariadb", { onProgress }).catch((error: Error) => error.message);
  const peers = alone ? [] : powertools(redis);
  if (!alone) await installPeers(onProgress);
  const folder = await temporaryFolder("cold");
  const stores = [`sqlite:${join(folder.path, "shop.db")}`];
  if (typeof mysql !== "string") stores.push(mysql.url);
  for (const store of stores) await fill(store);

  const deployed = stores.flatMap(deployedOn);
  const cached = deployed.map(
    (fn): ColdFunction => ({ ...fn, name: `${fn.name}, compile cache`, compileCache: true }),
  );
  const functions = [
    { name: EMPTY, path: pathOf("./cold/empty.ts"), event: () => ({}) },
    ...onEtcd(etcd),
    ...(await onDynamodb(dynamodb)),
    ...stores.map(openAlone),
    ...deployed,
    ...cached.filter(({ name }) => /^(http|queue),/.test(name)),
    ...peers,
  ];
  onProgress("bundling");
  // In sequence: on two cores, concurrent cold starts take longer than a lock request may.
  const all: Bundled[] = [];
  for (const [i, fn] of functions.entries()) all.push(await bundled(fn, join(folder.path, `${i}`)));
  const servers = [etcd, dynamodb, redis, ...(typeof mysql === "string" ? [] : [mysql])];
  return {
    server: [`Node ${process.version}`, ...servers.map(({ version }) => version)].join("; "),
    notes: [
      ...(typeof mysql === "string" ? [`no functions on MySQL: ${mysql}`] : []),
      "measured from the start of the import to the first answer, in a running Node process",
      ...(alone ? [] : ["Powertools on DynamoDB is only loaded"]),
    ],
    counts: Object.assign({}, ...functions.map(({ name }, i) => countsOf(name, all[i]?.loaded))),
    limits: { [`${GATEWAY}: bytes at import`]: MAX_BYTES },
    contenders: all.map(({ contender }) => contender),
    comparisons: [
      added(GATEWAY, CALLS, MAX_ADDED_BY_LOCK.etcd),
      added(GRPC, CALLS, MAX_ADDED_BY_LOCK.etcd),
      added(DYNAMODB, UPDATES, MAX_ADDED_BY_LOCK.dynamodb),
      ...Object.entries(MAX_ADDED_MILLIS).flatMap(([name, aim]) => {
        const of = `${name}, sqlite`;
        const below: Comparison = {
          name: `${of} / ${POWERTOOLS}`,
          ...{ of, over: POWERTOOLS, by: "p50", aim: 1 },
        };
        return [added(of, EMPTY, aim), ...(alone ? [] : [below])];
      }),
    ],
    async close() {
      await folder.remove();
      for (const server of servers) await server.stop();
    },
  };
};

function added(of: string, over: string, aim: number): Comparison {
  return { name: `milliseconds of ${of} over ${over}`, ...{ of, over, by: "added", aim } };
}

const SKU = "teapot";
const TOKEN = "0123456789abcdef";

/** Creates the tables, and more units than the benchmark sells. */
async function fill(url: string): Promise<void> {
  const { database, inventory, close } = await open(url);
  await migrate(database);
  await inventory.set({ sku: SKU, quantity: 1_000_000, operationId: "count" });
  await close();
}

/** Returns a function that only opens a store and reads. */
function openAlone(store: string): ColdFunction {
  return {
    name: `open and read, ${isMysql(store) ? "mysql" : "sqlite"}`,
    path: pathOf("./cold/open.ts"),
    env: { LOCKSTEP_STORE: store },
    event: () => ({}),
    isRight: (result) => Object(result).stock?.sku === SKU,
  };
}

/** Returns the functions of serverless.yml that answer events, on a store. */
function deployedOn(store: string): readonly ColdFunction[] {
  const on = (name: string, rest: Omit<ColdFunction, "name" | "path">): ColdFunction => ({
    name: `${name}, ${isMysql(store) ? "mysql" : "sqlite"}`,
    path: pathOf(`../../functions/aws/${name}.ts`),
    ...rest,
    env: { LOCKSTEP_STORE: store, ...rest.env },
  });
  const isDone = (result: unknown) => Object(result).batchItemFailures?.length === 0;
  return [
    on("http", {
      env: { LOCKSTEP_TOKEN: TOKEN },
      event: newRun,
      isRight: (result) => Object(result).statusCode === 200,
    }),
    on("queue", { event: newMessage, isRight: isDone }),
    on("stock", { event: newMessage, isRight: isDone }),
    on("schedule", {
      env: { LOCKSTEP_REPORT_SKUS: SKU },
      event: () => ({ time: new Date(randomInt(1e6) * 86_400_000).toISOString() }),
      isRight: (result) => Object(result).status === "completed",
    }),
    on("sweep", { event: () => ({}), isRight: (result) => Object(result).refused === 0 }),
  ];
}

function isMysql(text: string): boolean {
  return text.includes("mysql");
}

const newOrder = () => ({ orderId: randomUUID(), sku: SKU, quantity: 1 });

function newRun() {
  const order = newOrder();
  return httpApiEvent({
    method: "POST",
    rawPath: "/workflows/place-order/runs",
    headers: {
      authorization: `Bearer ${TOKEN}`,
      "content-type": "application/json",
      "idempotency-key": order.orderId,
    },
    body: JSON.stringify(order),
  });
}

function newMessage() {
  const record = {
    messageId: randomUUID(),
    receiptHandle: "handle",
    body: JSON.stringify(newOrder()),
    attributes: { ApproximateReceiveCount: "1" },
    messageAttributes: {},
    eventSource: "aws:sqs",
    eventSourceARN: "arn:aws:sqs:eu-central-1:000000000000:orders",
    awsRegion: "eu-central-1",
  };
  return { Records: [record] };
}

function onEtcd({ url }: Server): readonly ColdFunction[] {
  const env = { ETCD_ENDPOINT: new URL(url).host };
  const event = () => ({});
  return [
    { name: GATEWAY, path: pathOf("./cold/gateway.ts"), env, event },
    { name: GRPC, path: pathOf("./cold/grpc.ts"), env, event },
    { name: CALLS, path: pathOf("./cold/etcd-calls.ts"), env, event },
  ];
}

/** Returns functions on a new table. */
async function onDynamodb({ url }: Server): Promise<readonly ColdFunction[]> {
  const endpoint = new URL(url).searchParams.get("endpoint") ?? "";
  const credentials = { accessKeyId: "key", secretAccessKey: "secret" };
  const connection = { region: "local", table: "cold", endpoint, credentials };
  await using store = await openDynamodb(connection);
  await store.table.create();
  const env = {
    DYNAMODB_ENDPOINT: endpoint,
    AWS_ACCESS_KEY_ID: credentials.accessKeyId,
    AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey,
  };
  const event = () => ({});
  return [
    { name: DYNAMODB, path: pathOf("./cold/dynamodb.ts"), env, event },
    { name: UPDATES, path: pathOf("./cold/dynamodb-calls.ts"), env, event },
  ];
}

function powertools({ url }: Server): readonly ColdFunction[] {
  return [
    {
      name: POWERTOOLS,
      path: pathOf("./peers/powertools-redis.ts"),
      env: { REDIS_URL: url },
      event: () => ({ order: randomUUID() }),
    },
    {
      name: "Powertools idempotency on DynamoDB, import alone",
      path: pathOf("./peers/powertools-dynamodb.ts"),
      // A request would look for credentials in the network.
      env: { AWS_REGION: "eu-central-1" },
    },
  ];
}

function countsOf(name: string, loaded: Loaded | undefined): Record<string, number> {
  const parts = Object.entries({ import: loaded?.atImport, "first answer": loaded?.atAnswer });
  const counts = parts.flatMap(([part, size]) => [
    [`${name}: bytes at ${part}`, size?.bytes ?? 0],
    [`${name}: bytes at ${part}, by gzip`, size?.gzip ?? 0],
  ]);
  return Object.fromEntries(counts.filter(([, bytes]) => bytes !== 0));
}

function pathOf(relative: string): string {
  return fileURLToPath(new URL(relative, import.meta.url));
}
