import { chmod, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import mysql from "mysql2/promise";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { Database } from "../../core/database/sql.ts";
import { mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { postgresDatabase } from "../../core/stores/postgres/database.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { run } from "../../infra/servers/processes.ts";
import { startServer } from "../../infra/servers/start.ts";
import { makeAuthority } from "../support/certificates.ts";
import { CHECKS } from "../support/deployment/checks.ts";
import { expectFaultsFound } from "../support/deployment/faults.ts";
import {
  addDeploymentPackages,
  checkTypes,
  DEPLOYMENT_OF,
  initProject,
  inProject,
} from "../support/init-project.ts";
import { EventSource } from "../support/lambda-host/event-source.ts";
import { LambdaFunction } from "../support/lambda-host/function.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { sellOnLambdaHost } from "../support/lambda-host/sell.ts";
import { sqsEndpoint } from "../support/lambda-host/sqs-endpoint.ts";
import { cells, WHOLE_MATRIX } from "../support/matrix.ts";
import { type PackedProject, packedProject } from "../support/packed-project.ts";
import { SECRET_ARN, secretsManager } from "../support/secrets-manager.ts";
import { temporaryDatabase } from "../support/under-test.ts";
import { until } from "../support/until.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const [sql] = inject("sqlServers");
const [etcd] = inject("etcdServers");

/** The one command of docs/lambda.md that makes a bundle. */
async function commandOfDocs(): Promise<readonly string[]> {
  const page = await readFile(join(root, "docs/lambda.md"), "utf8");
  const [, command = ""] = /^npx (esbuild .*)$/m.exec(page) ?? [];
  return command.split(" ");
}

/** A database, and the secret of a user who may use it alone. */
async function databaseWithLogin() {
  if (!sql) throw new Error("there is no SQL server");
  const { url, options, drop } = await temporaryDatabase(sql);
  const { host, port, database: dbname } = options;
  const secret = { host, port, dbname, username: dbname, password: "a/b:c@d" };
  const admin = await mysql.createConnection(url);
  await admin.query(`CREATE USER ${dbname}@'%' IDENTIFIED BY '${secret.password}'`);
  await admin.query(`GRANT ALL ON ${dbname}.* TO ${dbname}@'%'`);
  return {
    secret,
    options,
    async [Symbol.asyncDispose]() {
      await admin.query(`DROP USER ${dbname}@'%'`);
      await admin.end();
      await drop();
    },
  };
}

let project: PackedProject;

beforeAll(async () => {
  project = await packedProject("mysql2", "pg", "@types/node", "undici-types");
}, 600_000);

afterAll(() => project[Symbol.asyncDispose]());

test("the function of the docs, bundled by one command, sells from MySQL under locks of etcd", async () => {
  const example = await readFile(join(root, "examples/lambda.ts"), "utf8");
  await writeFile(join(project.folder, "handler.ts"), example);
  const [esbuild = "", ...args] = await commandOfDocs();
  await run(join(root, "node_modules/.bin", esbuild), args, { cwd: project.folder });

  await using shop = await databaseWithLogin();
  using secrets = await secretsManager((_request, response) => {
    response.end(JSON.stringify({ SecretString: JSON.stringify(shop.secret) }));
  });
  const queue = new Queue({ name: "sales", visibility: 60 });
  await using endpoint = await sqsEndpoint(queue);
  const functionOf = (handler: string, concurrency = 1) =>
    new LambdaFunction({
      module: join(project.folder, "build/handler.mjs"),
      handler,
      timeout: 20_000,
      concurrency,
      env: {
        SHOP_SECRET: SECRET_ARN,
        ETCD: etcd?.endpoints[0],
        AWS_ENDPOINT_URL_SECRETS_MANAGER: secrets.url,
        AWS_ENDPOINT_URL_SQS: endpoint.url,
      },
    });
  await using migrate = functionOf("migrate");
  const migrated = await migrate.invoke({});
  expect(migrated).toMatchObject({ type: "response", result: { applied: expect.any(Array) } });

  await using database = mysqlDatabase(shop.options);
  const inventory = sqlInventory(database);
  await inventory.set({ sku: "teapot", quantity: 10, operationId: "count" });
  await using sales = functionOf("sales", 3);
  for (let i = 0; i < 30; i += 1) queue.send({ orderId: `order-${i}`, sku: "teapot" });
  await using _ = new EventSource({ queue, function: sales, twice: () => Math.random() < 0.2 });
  await until(() => queue.messages.length === 0, 200_000);
  expect(await inventory.get("teapot")).toMatchObject({ onHand: 0, sold: 10 });
}, 240_000);

describe("a project of lockstep init", () => {
  beforeAll(() => addDeploymentPackages(project), 240_000);

  test.each(
    cells([
      ["terraform", "mysql+etcd"],
      ["osls", "mysql"],
      ["sam", "mysql"],
      ["cdk", "mysql+etcd"],
      ["osls", "postgres"],
      ["sam", "postgres"],
      ["cdk", "postgres+etcd"],
      ["terraform", "postgres"],
    ] as const),
  )(
    "for %s on %s bundles by its own command, and deploys what every deployment keeps to",
    async (kind, store) => {
      const folder = await initProject(project, kind, store);
      await inProject(folder, "npm run bundle");
      const deployment = await DEPLOYMENT_OF[kind]?.(folder);
      if (!deployment) throw new Error(`${kind} describes no deployment`);
      for (const check of Object.values(CHECKS)) check(deployment);
      expectFaultsFound(deployment);
      for (const { environment } of deployment.functions) {
        expect("ETCD" in environment).toBe(store.endsWith("+etcd"));
      }
    },
  );

  test.runIf(WHOLE_MATRIX).each([
    ["sam", "mysql"],
    ["cdk", "mysql+etcd"],
    ["sam", "postgres"],
    ["cdk", "postgres+etcd"],
  ])("for %s on %s has types", async (kind, store) => {
    await checkTypes(join(project.folder, `${kind}-${store}`));
  });

  test.each([
    ["terraform-mysql+etcd", mysqlWithTls],
    ["terraform-postgres", postgresWithTls],
  ])(
    "at %s sells on the Lambda host, from a database whose secret and authority are like those of RDS",
    async (name, start) => {
      await using shop = await start();
      await using database = shop.open();
      await sellOnLambdaHost({
        folder: join(project.folder, name),
        inventory: sqlInventory(database),
        journal: sqlJournal(database),
        env: {
          SHOP_SECRET: SECRET_ARN,
          DATABASE: "shop",
          ETCD: etcd?.endpoints[0],
          NODE_EXTRA_CA_CERTS: shop.ca,
        },
        workerEnv: { SHOP: JSON.stringify(shop.local), ETCD: etcd?.endpoints[0] },
        login: shop.secret,
      });
    },
  );
});

/** A database on a server of its own, whose certificate is signed by an authority that Node does not know. */
interface DatabaseWithTls extends AsyncDisposable {
  /** The file of the authority's certificate. */
  readonly ca: string;

  /** As of a master user: it lacks the name of the database. */
  readonly secret: object;

  /** A login without TLS. */
  readonly local: object;

  open(): Database;
}

const PASSWORD = "a/b:c@d";

async function mysqlWithTls(): Promise<DatabaseWithTls> {
  const authority = await makeAuthority();
  const { cert, key } = await authority.sign("localhost");
  const args = [`--ssl-ca=${authority.ca}`, `--ssl-cert=${cert}`, `--ssl-key=${key}`];
  const server = await startServer("mariadb", { args });
  const port = Number(new URL(server.url).port);
  const admin = await mysql.createConnection({ host: "127.0.0.1", port, user: "root" });
  await admin.query("CREATE DATABASE shop");
  await admin.query(`CREATE USER shop@'%' IDENTIFIED BY '${PASSWORD}' REQUIRE SSL`);
  await admin.query("GRANT ALL ON shop.* TO shop@'%'");
  await admin.query("CREATE USER local@'%' IDENTIFIED BY 'local'");
  await admin.query("GRANT ALL ON shop.* TO local@'%'");
  await admin.end();
  return {
    ca: authority.ca,
    secret: { host: "localhost", port, username: "shop", password: PASSWORD },
    local: { host: "127.0.0.1", port, username: "local", password: "local", dbname: "shop" },
    open: () => mysqlDatabase({ host: "127.0.0.1", port, user: "root", database: "shop" }),
    async [Symbol.asyncDispose]() {
      await server.stop();
      await authority[Symbol.asyncDispose]();
    },
  };
}

async function postgresWithTls(): Promise<DatabaseWithTls> {
  const authority = await makeAuthority();
  const { cert, key } = await authority.sign("localhost");
  const rules = join(dirname(key), "pg_hba.conf");
  await writeFile(
    rules,
    "hostssl all shop all scram-sha-256\nhost all postgres 127.0.0.1/32 trust\n",
  );
  await chmod(key, 0o600);
  // The server does not run as root.
  if (process.getuid?.() === 0) await run("chown", ["-R", "postgres:", dirname(key)]);
  const files = [`ssl_cert_file=${cert}`, `ssl_key_file=${key}`, `hba_file=${rules}`];
  const args = ["ssl=on", ...files].flatMap((setting) => ["-c", setting]);
  const server = await startServer("postgres", { args });
  const port = Number(new URL(server.url).port);
  const superuser = { host: "127.0.0.1", port, user: "postgres", password: "local" };
  const admin = new Client(superuser);
  await admin.connect();
  await admin.query(`CREATE ROLE shop LOGIN PASSWORD '${PASSWORD}'`);
  await admin.query("CREATE DATABASE shop OWNER shop");
  await admin.end();
  return {
    ca: authority.ca,
    secret: { engine: "postgres", host: "localhost", port, username: "shop", password: PASSWORD },
    local: { host: "127.0.0.1", port, username: "postgres", password: "local", dbname: "shop" },
    open: () => postgresDatabase({ ...superuser, database: "shop" }),
    async [Symbol.asyncDispose]() {
      await server.stop();
      await authority[Symbol.asyncDispose]();
    },
  };
}
