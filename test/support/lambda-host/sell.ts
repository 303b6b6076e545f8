import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect } from "vitest";
import { z } from "zod";
import type { Inventory } from "../../../core/inventory/inventory.ts";
import type { Journal } from "../../../core/journal/journal.ts";
import { createRuntime, workflow } from "../../../core/steps/index.ts";
import { httpApiEvent } from "../lambda.ts";
import { runNode } from "../script.ts";
import { SECRET_ARN, secretsManager } from "../secrets-manager.ts";
import { until } from "../until.ts";
import { EventSource } from "./event-source.ts";
import { LambdaFunction } from "./function.ts";
import { Queue } from "./queue.ts";
import { sqsEndpoint } from "./sqs-endpoint.ts";

interface DeployedShop {
  /** The folder of a project of `lockstep init`, with its bundles. */
  readonly folder: string;
  readonly inventory: Inventory;
  readonly journal: Journal;

  /** The variables of the functions that name the store. */
  readonly env: NodeJS.ProcessEnv;
  readonly workerEnv: NodeJS.ProcessEnv;

  /** The login at the database, if it has one: the secret of `SECRET_ARN`. A function then makes the tables. */
  readonly login?: object;
}

const TOKEN = "0123456789abcdef";

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

/** Sells four teapots through the functions of a project on the Lambda host, and a fifth through its worker. */
export async function sellOnLambdaHost(shop: DeployedShop): Promise<void> {
  const { folder, inventory, journal, env, workerEnv, login } = shop;
  using secrets = await secretsManager(async (request, response) => {
    const { SecretId } = JSON.parse(await text(request));
    const SecretString = SecretId === SECRET_ARN ? JSON.stringify(login) : TOKEN;
    response.end(JSON.stringify({ SecretString }));
  });
  const queue = new Queue({ name: "orders", visibility: 60 });
  const dead = new Queue({ name: "orders-dead", visibility: 60 });
  await using endpoint = await sqsEndpoint(queue, dead);
  const deployed = (name: string, concurrency = 1) =>
    new LambdaFunction({
      module: join(folder, "build", name, "index.mjs"),
      handler: "handler",
      timeout: 20_000,
      concurrency,
      env: {
        ...env,
        TOKEN_SECRET: SECRET_ARN.replace("shop", "token"),
        DEAD_LETTERS: dead.arn,
        AWS_ENDPOINT_URL_SECRETS_MANAGER: secrets.url,
        AWS_ENDPOINT_URL_SQS: endpoint.url,
      },
    });
  if (login) {
    await using migrate = deployed("migrate");
    expect(await migrate.invoke({})).toMatchObject({ type: "response" });
  }

  await inventory.set({ sku: "teapot", quantity: 4, operationId: "count" });
  await using orders = deployed("orders", 2);
  for (let i = 0; i < 8; i += 1) queue.send({ orderId: `o-${i}`, sku: "teapot", quantity: 1 });
  queue.send("{");
  await using _ = new EventSource({ queue, function: orders, twice: () => Math.random() < 0.2 });
  await until(() => queue.messages.length === 0, 200_000);
  expect(await inventory.get("teapot")).toMatchObject({ onHand: 0, sold: 4 });
  expect(new Set(dead.messages.map(({ body }) => body))).toEqual(new Set(["{"]));

  await using http = deployed("http");
  const get = (rawPath: string, token: string) =>
    http.invoke(httpApiEvent({ rawPath, headers: { authorization: `Bearer ${token}` } }));
  const ok = { result: { statusCode: 200 } };
  expect(await get("/stock/teapot", TOKEN)).toMatchObject(ok);
  expect(await get("/ready", TOKEN)).toMatchObject(ok);
  expect(await get("/stock/teapot", "fedcba9876543210")).toMatchObject({
    result: { statusCode: 401 },
  });
  await using schedule = deployed("schedule");
  expect(await schedule.invoke({ time: "2026-03-04T00:10:00Z" })).toMatchObject({
    result: { status: "completed", output: [{ sku: "teapot", sold: 4 }] },
  });
  await using sweep = deployed("sweep");
  expect(await sweep.invoke({})).toMatchObject({ result: { refused: 0 } });

  await inventory.restock({ sku: "teapot", quantity: 1, operationId: "delivery" });
  await createRuntime({ journal }).start(placeOrder, {
    orderId: "late",
    sku: "teapot",
    quantity: 1,
  });
  using worker = runNode([join(folder, "build/worker/index.mjs")], {
    env: { ...process.env, ...workerEnv },
  });
  await until(async () => (await inventory.get("teapot"))?.sold === 5);
  worker.child.kill("SIGTERM");
  expect(await worker.ended).toBe(0);
}
