import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
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
import { sellOnLambdaHost } from "../support/lambda-host/sell.ts";
import { type PackedProject, packedProject } from "../support/packed-project.ts";

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
  const env = { TABLE: shop.table, AWS_ENDPOINT_URL_DYNAMODB: policed.url };
  const keys = { AWS_REGION: "local", AWS_ACCESS_KEY_ID: "key", AWS_SECRET_ACCESS_KEY: "secret" };
  const { inventory, journal } = shop.store;
  await sellOnLambdaHost({ folder, inventory, journal, env, workerEnv: { ...keys, ...env } });
  expect([...policed.used].sort()).toEqual(
    [...new Set(actions)].filter((action) => action.startsWith("dynamodb:")).sort(),
  );
});

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
