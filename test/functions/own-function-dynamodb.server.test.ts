import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { z } from "zod";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { dynamodbClient } from "../../core/stores/dynamodb/client/client.ts";
import { dynamodbStore } from "../../core/stores/dynamodb/store.ts";
import { nodeFetch } from "../../core/stores/node-fetch.ts";
import { PROJECT_KINDS, type ProjectKind } from "../../infra/init/write-project.ts";
import { CHECKS } from "../support/deployment/checks.ts";
import { expectFaultsFound } from "../support/deployment/faults.ts";
import { policedDynamodb } from "../support/dynamodb-policy.ts";
import {
  addDeploymentPackages,
  checkTypes,
  DEPLOYMENT_OF,
  initProject,
  inProject,
} from "../support/init-project.ts";
import { httpApiEvent } from "../support/lambda.ts";
import { EventSource } from "../support/lambda-host/event-source.ts";
import { LambdaFunction } from "../support/lambda-host/function.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { sqsEndpoint } from "../support/lambda-host/sqs-endpoint.ts";
import { type PackedProject, packedProject } from "../support/packed-project.ts";
import { runNode } from "../support/script.ts";
import { SECRET_ARN, secretsManager } from "../support/secrets-manager.ts";
import { until } from "../support/until.ts";

const [server] = inject("dynamodbServers");

let project: PackedProject;

beforeAll(async () => {
  // No client of a store: DynamoDB needs none.
  project = await packedProject("@types/node", "undici-types");
  await addDeploymentPackages(project);
}, 600_000);

afterAll(() => project[Symbol.asyncDispose]());

async function deploymentOf(kind: ProjectKind) {
  const deployment = await DEPLOYMENT_OF[kind]?.(join(project.folder, `${kind}-dynamodb`));
  if (!deployment) throw new Error(`${kind} describes no deployment`);
  return deployment;
}

test.each(PROJECT_KINDS)(
  "a project for %s on dynamodb has types, bundles by its own command, and deploys what every deployment keeps to",
  async (kind) => {
    const folder = await initProject(project, kind, "dynamodb");
    const { dependencies } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    expect(Object.keys(dependencies).sort()).toEqual(["lockstep", "zod"]);
    await checkTypes(folder);
    await inProject(folder, "npm run bundle");
    const deployment = await deploymentOf(kind);
    expect(deployment.tables).toHaveLength(1);
    for (const check of Object.values(CHECKS)) check(deployment);
    expectFaultsFound(deployment);
  },
);

test("a project for osls on dynamodb sells on the Lambda host, from the table and by the rights that it deploys", async () => {
  const folder = join(project.folder, "osls-dynamodb");
  const { functions, tables } = await deploymentOf("osls");
  const [definition] = tables.map((table) => table.definition);
  const actions = functions.flatMap(({ statements }) => statements.flatMap((one) => one.actions));
  await using shop = await tableOf(definition);
  await using policed = await policedDynamodb(shop.url, { table: shop.table, actions });
  const { inventory } = shop.store;
  const token = "0123456789abcdef";
  using secrets = await secretsManager(async (request, response) => {
    await text(request);
    response.end(JSON.stringify({ SecretString: token }));
  });
  const queue = new Queue({ name: "orders", visibility: 60 });
  const dead = new Queue({ name: "orders-dead", visibility: 60 });
  await using endpoint = await sqsEndpoint(queue, dead);
  const env = { TABLE: shop.table, AWS_ENDPOINT_URL_DYNAMODB: policed.url };
  const deployed = (name: string, concurrency = 1) =>
    new LambdaFunction({
      module: join(folder, "build", name, "index.mjs"),
      handler: "handler",
      timeout: 20_000,
      concurrency,
      env: {
        ...env,
        TOKEN_SECRET: SECRET_ARN,
        DEAD_LETTERS: dead.arn,
        AWS_ENDPOINT_URL_SECRETS_MANAGER: secrets.url,
        AWS_ENDPOINT_URL_SQS: endpoint.url,
      },
    });

  await inventory.set({ sku: "teapot", quantity: 4, operationId: "count" });
  await using orders = deployed("orders", 2);
  for (let i = 0; i < 8; i += 1) queue.send({ orderId: `o-${i}`, sku: "teapot", quantity: 1 });
  queue.send("{");
  await using _ = new EventSource({ queue, function: orders, twice: () => Math.random() < 0.2 });
  await until(() => queue.messages.length === 0, 200_000);
  expect(await inventory.get("teapot")).toMatchObject({ onHand: 0, sold: 4 });
  expect(new Set(dead.messages.map(({ body }) => body))).toEqual(new Set(["{"]));

  await using http = deployed("http");
  const get = (rawPath: string, authorization: string) =>
    http.invoke(httpApiEvent({ rawPath, headers: { authorization } }));
  expect(await get("/stock/teapot", `Bearer ${token}`)).toMatchObject({
    result: { statusCode: 200 },
  });
  expect(await get("/ready", `Bearer ${token}`)).toMatchObject({ result: { statusCode: 200 } });
  expect(await get("/stock/teapot", "Bearer fedcba9876543210")).toMatchObject({
    result: { statusCode: 401 },
  });
  await using schedule = deployed("schedule");
  expect(await schedule.invoke({ time: "2026-03-04T00:10:00Z" })).toMatchObject({
    result: { status: "completed", output: [{ sku: "teapot", sold: 4 }] },
  });
  await using sweep = deployed("sweep");
  expect(await sweep.invoke({})).toMatchObject({ result: { refused: 0 } });

  await inventory.restock({ sku: "teapot", quantity: 1, operationId: "delivery" });
  const late = { orderId: "late", sku: "teapot", quantity: 1 };
  const runtime = createRuntime({ journal: shop.store.journal });
  await runtime.start(placeOrder, late);
  const keys = { AWS_REGION: "local", AWS_ACCESS_KEY_ID: "key", AWS_SECRET_ACCESS_KEY: "secret" };
  using worker = runNode([join(folder, "build/worker/index.mjs")], {
    env: { ...process.env, ...keys, ...env },
  });
  await until(async () => (await inventory.get("teapot"))?.sold === 5);
  worker.child.kill("SIGTERM");
  expect(await worker.ended).toBe(0);
  expect([...policed.used].sort()).toEqual(
    [...new Set(actions)].filter((action) => action.startsWith("dynamodb:")).sort(),
  );
});

/** The workflow of the project, for starts. */
const placeOrder = workflow(
  {
    name: "place-order",
    version: 1,
    input: z.object({ orderId: z.string() }).loose(),
    id: ({ orderId }) => orderId,
  },
  async () => {},
);

/** Makes a table by the definition of a deployment. */
async function tableOf(definition: object = {}) {
  const table = `test-${randomUUID()}`;
  const url = `http://127.0.0.1:${server?.port}`;
  const credentials = { accessKeyId: "key", secretAccessKey: "secret" };
  const options = { region: "local", table, endpoint: url, credentials, fetch: nodeFetch() };
  await using admin = dynamodbClient(options);
  await admin.manage("CreateTable", definition);
  const store = dynamodbStore({ ...options, timeout: 9_000 });
  return { table, url, store, [Symbol.asyncDispose]: () => store.close() };
}
