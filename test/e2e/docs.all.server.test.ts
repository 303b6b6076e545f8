import { execFile } from "node:child_process";
import { chmod, cp, mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import mysql, { type Connection } from "mysql2/promise";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { installPeers } from "../bench/peers.ts";
import { cli, MAIN } from "../support/cli.ts";
import { blocksOf, examples, pageAt, pages } from "../support/docs.ts";
import { anyTable, dynamodbPort, type TestTable } from "../support/dynamodb-under-test.ts";
import { httpApiEvent } from "../support/lambda.ts";
import { type PackedProject, packedProject } from "../support/packed-project.ts";
import { runNode } from "../support/script.ts";
import { connectTo, temporaryDatabase } from "../support/under-test.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

/** The code blocks in one of these languages, without those of translations and of the runbook, which has a test of its own. */
function blocks(...languages: readonly string[]): readonly string[] {
  return [...pages].flatMap(([path, page]) =>
    /zh-CN|operations/.test(path) ? [] : blocksOf(page, ...languages),
  );
}

const [etcd] = inject("etcdServers");
const redisPorts = (name: string) =>
  inject("redisServers").find((server) => server.name === name)?.ports ?? [];
const [zookeeper] = inject("zookeeperServers");

const CLIENTS = ["mysql2", "pg", "etcd3", "ioredis", "vitest"];

/** Packages of programs from before a move, where the benchmarks install them. */
const PEERS = ["redlock", "@aws-lambda-powertools/idempotency"];
const peers = join(root, "test/bench/peers");

/** Tables of the reader's own, for the programs on PostgreSQL: those that the pages make and fill, and others. */
const OWN_TABLES = `
  ${["docs/start.md", "docs/stock.md"].flatMap((path) => blocksOf(pageAt(path), "sql")).join("")}
  ${["start-stock.ts", "medusa.ts"].flatMap(statementsOf).join(";")};
  CREATE TABLE report (name TEXT PRIMARY KEY, units INT NOT NULL);
  INSERT INTO report VALUES ('stock', 0);`;

/** The same on MySQL. */
const OWN_MYSQL_TABLES = [
  ...statementsOf("start-sqs-own.ts"),
  ...statementsOf("shop-mysql.ts"),
  "INSERT INTO seat VALUES (1, 'order-1'), (2, NULL), (3, NULL), (4, 'order-1'), (5, NULL)",
];

/** The statements that a program says in its comments. */
function statementsOf(program: string): readonly string[] {
  const comments = (examples.get(program) ?? "").matchAll(/^\/\/ ((?:CREATE|INSERT) .*)$/gm);
  return [...comments].map(([, statement = ""]) => statement);
}

let packed: PackedProject;
let project: string;
let database: Awaited<ReturnType<typeof temporaryDatabase>>;
let connection: Connection;
let table: TestTable;
let postgres: Awaited<ReturnType<typeof temporaryDatabase>>;

/** Makes a project that has the package as a dependency, a server behind it, and the command on its path. */
beforeAll(async () => {
  const [server] = inject("sqlServers");
  if (!server) throw new Error("no SQL server is running");
  database = await temporaryDatabase(server);
  connection = await mysql.createConnection(database.url);
  for (const statement of OWN_MYSQL_TABLES) await connection.query(statement);
  await cli("migrate", "--store", database.url);
  const [postgresServer] = inject("postgresServers");
  if (!postgresServer) throw new Error("no PostgreSQL is running");
  postgres = await temporaryDatabase(postgresServer);
  await cli("migrate", "--store", postgres.url);
  const shop = await connectTo(postgres.url);
  await shop.query(OWN_TABLES);
  await shop.end();
  table = await anyTable();
  await makeIdempotencyTable();
  packed = await packedProject(...CLIENTS, "@types/node", "@types/pg", "undici-types");
  project = packed.folder;
  await installPeers(() => {});
  for (const peer of PEERS) {
    const link = join(project, "node_modules", peer);
    await mkdir(dirname(link), { recursive: true });
    await symlink(join(peers, "node_modules", peer), link);
  }
  await mkdir(join(project, "bin"));
  const command = join(project, "bin/lockstep");
  await writeFile(command, `#!/bin/sh\nexec "${process.execPath}" "${MAIN}" "$@"\n`);
  await chmod(command, 0o755);
}, 600_000);

afterAll(async () => {
  await connection.end();
  await database.drop();
  await postgres.drop();
  await packed[Symbol.asyncDispose]();
});

/** Makes the table that Powertools' idempotency needs, beside that of the programs. */
async function makeIdempotencyTable(): Promise<void> {
  await using admin = table.open();
  await admin.manage("CreateTable", {
    TableName: idempotencyTable(),
    BillingMode: "PAY_PER_REQUEST",
    AttributeDefinitions: [{ AttributeName: "id", AttributeType: "S" }],
    KeySchema: [{ AttributeName: "id", KeyType: "HASH" }],
  });
}

function idempotencyTable(): string {
  return `${new URL(table.url).pathname.slice(1)}-idempotency`;
}

/** Replaces the servers that the docs name by those of the test. */
function onOurServers(code: string): string {
  return onOurTable(onOurPostgres(code))
    .replace("mysql://root@127.0.0.1/shop", database.url)
    .replace("127.0.0.1:2379", etcd?.endpoints[0] ?? "")
    .replace("127.0.0.1:2181", zookeeper?.servers[0] ?? "")
    .replace("port: 6379", `port: ${redisPorts("redis")[0]}`)
    .replace("6381, 6382, 6383, 6384, 6385", redisPorts("redlock").join(", "))
    .replace("port: 3306", `port: ${database.options.port}`)
    .replace('database: "shop"', `database: "${database.options.database}"`);
}

/** The programs on PostgreSQL name its port. */
function onOurPostgres(code: string): string {
  if (!code.includes("port: 5432")) return code;
  const { port, user, database: name } = postgres.options;
  return code
    .replace("port: 5432", `port: ${port}`)
    .replace('user: "shop"', `user: "${user}"`)
    .replace('database: "shop"', `database: "${name}"`);
}

/** The program on DynamoDB has one table for its stock and its orders. */
function onOurTable(code: string): string {
  const { hostname, pathname, searchParams } = new URL(table.url);
  const name = pathname.slice(1);
  const ours = `region: "${hostname}", table: "${name}", endpoint: "${searchParams.get("endpoint")}"`;
  return code
    .replace('region: "eu-west-1", table: "shop"', ours)
    .replace('TableName: "orders"', `TableName: "${name}"`)
    .replace('tableName: "idempotency"', `tableName: "${idempotencyTable()}"`);
}

/** Makes a folder of the project with all examples in it. */
async function folderOf(name: string): Promise<string> {
  const folder = join(project, name);
  await cp(join(root, "examples"), folder, { recursive: true });
  for (const [file, code] of examples) await writeFile(join(folder, file), onOurServers(code));
  return folder;
}

describe("an example", () => {
  test("compiles against the package", async () => {
    const folder = await folderOf("types");
    const options = {
      strict: true,
      noEmit: true,
      module: "nodenext",
      allowImportingTsExtensions: true,
      target: "es2024",
      types: ["node"],
    };
    const compilerOptions = {
      ...options,
      lib: ["es2024", "esnext"],
      skipLibCheck: true,
      allowJs: true,
    };
    const include = ["*.ts", "*.mjs"];
    await writeFile(join(folder, "package.json"), '{ "type": "module" }');
    await cp(join(peers, "redlock-types.d.ts"), join(folder, "redlock-types.d.ts"));
    await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include }));
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    const { stdout } = await run(process.execPath, [tsc, "-p", folder]).catch((error) => error);
    expect(stdout).toBe("");
  });

  test("of tests passes", async () => {
    const folder = await folderOf("tests");
    // The variables of the test run that this test belongs to would change the inner one.
    const outside = Object.entries(process.env).filter(([name]) => !name.startsWith("VITEST"));
    const env = { ...Object.fromEntries(outside), NO_COLOR: "1" };
    const vitest = join(root, "node_modules/vitest/vitest.mjs");
    const { stdout } = await run(process.execPath, [vitest, "run"], { cwd: folder, env });
    expect(stdout).toMatch(/Tests +8 passed/);
  });

  const isProgram = (name: string) => name.endsWith(".ts") && !name.endsWith(".test.ts");
  const programs = [...examples.keys()].filter(isProgram);
  test.each(programs)("prints what its comments say: %s", async (name) => {
    const folder = await folderOf(name);
    await writeFile(join(folder, "package.json"), '{ "type": "module" }');
    const said = [...(examples.get(name) ?? "").matchAll(/^ *console\.log\(.*\); \/\/ (.*)$/gm)];
    const aws = {
      AWS_ACCESS_KEY_ID: "key",
      AWS_SECRET_ACCESS_KEY: "secret",
      AWS_REGION: "local",
      AWS_ENDPOINT_URL_DYNAMODB: `http://127.0.0.1:${dynamodbPort()}`,
    };
    const env = { ...process.env, ...aws, LOCKSTEP_TOKEN: "a-token-of-our-own" };
    const { stdout } = await run(process.execPath, [name], { cwd: folder, env });
    expect(stdout).toBe(said.map(([, line]) => `${line}\n`).join(""));
  });

  test("of tables of your own has taken two seats, and sold one order", async () => {
    const taken = "SELECT id FROM seat WHERE taken_by = 'order-7' ORDER BY id";
    expect((await connection.query(taken))[0]).toEqual([{ id: 2 }, { id: 3 }]);
    const sales = "SELECT order_id, outcome FROM sale ORDER BY order_id";
    expect((await connection.query(sales))[0]).toEqual([
      { order_id: "order-7", outcome: "sold" },
      { order_id: "order-8", outcome: "sold-out" },
    ]);
    const left = "SELECT on_hand FROM stock ORDER BY sku";
    expect((await connection.query(left))[0]).toEqual([{ on_hand: 3 }, { on_hand: 1 }]);
  });

  test("of a shop on MySQL answers a repetition as the first time, and refuses what its column cannot hold", async () => {
    await connection.query("INSERT INTO stock VALUES ('saucer', 5)");
    const printed = await changed("shop-mysql.ts", (code) =>
      code.replace(
        /console\.log\(await sell.*(?=await pool\.end)/s,
        `const sells = (order: string, quantity: number) => sell(order, [{ sku: "saucer", quantity }]);
         const eight = await Promise.all(Array.from({ length: 8 }, () => sells("order-20", 4)));
         console.log([...new Set(eight)].join());
         const again = await Promise.all(Array.from({ length: 8 }, () => sells("order-21", 2)));
         await pool.query("UPDATE stock SET on_hand = 9 WHERE sku = 'saucer'"); // a delivery of saucers
         console.log([...new Set(again), await sells("order-21", 2)].join());
         const plate = [{ sku: "plate", quantity: 1 }];
         console.log(await sell("order-22", plate).catch(({ message }) => message));
         await pool.query("INSERT INTO stock VALUES ('plate', 1)");
         console.log(await sell("order-22", plate));
         console.log(await sells("x".repeat(65), 1).catch(({ code }) => code));\n`,
      ),
    );
    const known = ["there is no plate", "sold"];
    expect(printed).toEqual(["sold", "sold-out,sold-out", ...known, "ER_DATA_TOO_LONG"]);
    const left = "SELECT on_hand FROM stock WHERE sku = 'saucer'";
    expect((await connection.query(left))[0]).toEqual([{ on_hand: 9 }]);
  });

  test("of a consumer answers each order once, also when its deliveries come at the same moment", async () => {
    const shop = postgres.open();
    await shop.batch([sql`INSERT INTO stock VALUES ('lid', 9), ('straw', 5)`]);
    const printed = await changed("start-consumer.ts", (code) =>
      code.replace(
        /await onMessage\(.*(?=console\.log)/s,
        `const straws = (quantity: number) => [{ sku: "lid", quantity: 1 }, { sku: "straw", quantity }];
         await Promise.all(Array.from({ length: 8 }, () => onMessage("order-3", straws(4))));
         await onMessage("order-4", straws(2));
         await pool.query("UPDATE stock SET on_hand = 9 WHERE sku = 'straw'"); // a delivery of straws
         await onMessage("order-4", straws(2));
         const flute = () => onMessage("order-5", [{ sku: "flute", quantity: 1 }]);
         await flute().catch(({ message }) => console.log(message));
         await pool.query("INSERT INTO stock VALUES ('flute', 1)");
         await flute();\n`,
      ),
    );
    const [unknown, ...rest] = printed;
    expect(unknown).toBe("there is no flute");
    const mails = rest.join().split(", ");
    expect(new Set(mails)).toEqual(new Set(["order-3 sold", "order-4 sold-out", "order-5 sold"]));
    expect(mails.filter((mail) => mail.startsWith("order-4"))).toHaveLength(1);
    const left = await shop.read(
      sql`SELECT on_hand FROM stock WHERE sku IN ('lid', 'straw') ORDER BY sku`,
    );
    expect(left).toEqual([{ on_hand: 8 }, { on_hand: 9 }]); // the order that was sold out has taken no lid
    await shop.close();
  });

  test("of an order undoes its payment by both steps, and a retry makes another payment", async () => {
    const [, declined = ""] =
      /Declined: throw new (.*)\. \*\/$/m.exec(examples.get("order-workflow.ts") ?? "") ?? [];
    const printed = await changed("order-workflow.ts", (code) =>
      code
        .replace("return `payment of", "return _key; `")
        .replace(/return .* confirmed`/, `if (payment.endsWith("e")) throw new ${declined}`)
        .replace(/return .* is back`/, "console.log(payment)")
        .replace(/return .* under way`/, 'throw new TerminalError("REFUSED")')
        .replace(
          /console\.log\(outcome.*/,
          "await runtime.retry(order.id); await runtime.run(placeOrder, order);",
        ),
    );
    const [first, second] = ["order-8/prepare", "order-8/prepare@1"];
    expect(printed).toEqual([first, second, second]); // the first one was declined
  });

  test("of a basket sells nothing after its expiry, and puts its units back", async () => {
    const shop = postgres.open();
    const inSql = (code: string) =>
      code
        .replaceAll("15 minutes", "0 minutes")
        .replaceAll("fork", "cork")
        .replaceAll("knife", "cap")
        .replaceAll("attempt-", "late-");
    await shop.batch([sql`INSERT INTO stock VALUES ('cork', 1), ('cap', 1)`]);
    expect(await changed("basket-sql.ts", inSql)).toEqual([
      ...["true", "true", "false", "true", "false"],
    ]);
    const left = await shop.read(sql`SELECT on_hand FROM stock WHERE sku IN ('cork', 'cap')`);
    expect(left).toEqual([{ on_hand: 1 }, { on_hand: 1 }]);
    // The second buyer gets the units of the first one, and the first one's basket is sold out.
    const ours = (code: string) =>
      code
        .replace('"15m"', "1")
        .replaceAll('"chair"', '"bench"')
        .replaceAll("attempt-", "late-")
        .replace("count-of-chairs", "count-of-benches");
    expect(await changed("basket.ts", ours)).toEqual(["true", "true", "true", "0"]);
    await shop.close();
  });

  test("of stock and of a nightly job has left its rows in PostgreSQL", async () => {
    const shop = postgres.open();
    const sales = await shop.read(sql`SELECT order_id FROM sale`);
    expect(sales).toEqual([{ order_id: "order-7" }]);
    expect(await shop.read(sql`SELECT id FROM purchase`)).toEqual([{ id: "order-7" }]);
    const [report] = await shop.read(sql`SELECT units FROM report`);
    expect(Number(report?.units)).toBeGreaterThanOrEqual(3); // before the sales or after them
    await shop.close();
  });
});

/** Runs a program of the docs with a change in it, and returns what it prints. */
async function changed(name: string, change: (code: string) => string): Promise<readonly string[]> {
  const folder = await folderOf(`changed-${name}`);
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
  await writeFile(join(folder, name), change(onOurServers(examples.get(name) ?? "")));
  const { stdout } = await run(process.execPath, [name], { cwd: folder });
  return stdout.trim().split("\n");
}

/** Imports a program of the docs, calls its handlers, and returns what the calls print. */
async function calling(name: string, body: string): Promise<readonly string[]> {
  const folder = await folderOf(`calling-${name}`);
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
  const context = "{ getRemainingTimeInMillis: () => 10_000 }";
  const program = `import * as start from "./${name}";\nconst context = ${context};\n${body}\nprocess.exit();\n`;
  await writeFile(join(folder, "call.ts"), program);
  const { stdout } = await run(process.execPath, ["call.ts"], { cwd: folder });
  return stdout.trim().split("\n");
}

describe("the functions of the docs", () => {
  beforeAll(async () => {
    for (const sku of ["12A", "teapot", "cup"]) {
      await cli("inventory", "set", sku, "1", "--store", database.url);
    }
  });

  test("sell the last seat to one of two Lambdas, and answer a repetition as the first time", async () => {
    const answers = await calling(
      "start-lambda.ts",
      `const sell = (order: string) => start.sell({ order, seat: "12A" });
       const first = await Promise.all(["order-1", "order-2", "order-3"].map(sell));
       const again = await Promise.all(["order-1", "order-2", "order-3"].map(sell));
       console.log(first.toSorted().join(" "));
       console.log(again.join(" ") === first.join(" "));
       console.log(await start.report({ day: "Monday" }, context));`,
    );
    expect(answers).toEqual(["applied sold-out sold-out", "true", "the report of Monday"]);
  });

  test("sell to each message of SQS once", async () => {
    const answers = await calling(
      "start-sqs.ts",
      `const record = (orderId: string) => ({
         messageId: orderId,
         body: JSON.stringify({ orderId, sku: "teapot", quantity: 1 }),
         attributes: {},
         eventSourceARN: "arn:aws:sqs:eu-west-1:1:sales",
       });
       const event = { Records: [record("order-4"), record("order-5")] } as never;
       console.log(JSON.stringify(await start.handler(event, context)));`,
    );
    expect(answers.slice(0, 2).toSorted()).toEqual(["order-4 applied", "order-5 sold-out"]);
    expect(answers[2]).toBe('{"batchItemFailures":[]}');
  });

  test("give a seat of the reader's own table to the first message", async () => {
    const answers = await calling(
      "start-sqs-own.ts",
      `const record = (messageId: string, body: unknown) => ({ messageId, body: JSON.stringify(body) });
       console.error = () => {};
       const Records = [
         record("1", { orderId: "order-9", seat: 5 }),
         record("2", { orderId: "order-10", seat: 5 }),
         record("3", { orderId: "order-9", seat: 5 }),
         record("4", { orderId: "order-11" }),
         record("5", { orderId: "order-12", seat: 77 }),
         record("6", { orderId: "order-9", seat: 2 }),
         record("7", { orderId: 0, seat: 5 }),
       ];
       console.log(JSON.stringify(await start.handler({ Records })));`,
    );
    expect(answers).toEqual([
      "order-9 has the seat",
      "order-10 is too late",
      "order-9 has the seat",
      `{"batchItemFailures":${JSON.stringify(["4", "5", "6", "7"].map((itemIdentifier) => ({ itemIdentifier })))}}`,
    ]);
    await connection.query("INSERT INTO seat VALUES (77, NULL)");
    const later = await calling(
      "start-sqs-own.ts",
      `const body = JSON.stringify({ orderId: "order-12", seat: 77 });
       await start.handler({ Records: [{ messageId: "5", body }] });`,
    );
    expect(later).toEqual(["order-12 has the seat"]);
  });

  test("answer an order as the first time when the seat is free again", async () => {
    await connection.query("UPDATE seat SET taken_by = NULL WHERE id = 5"); // order-9 was cancelled
    const answers = await calling(
      "start-sqs-own.ts",
      `const bodies = ["order-9", "order-10"].map((orderId) => JSON.stringify({ orderId, seat: 5 }));
       await start.handler({ Records: bodies.map((body, i) => ({ messageId: String(i), body })) });`,
    );
    expect(answers).toEqual(["order-9 has the seat", "order-10 is too late"]);
    const taken = "SELECT taken_by FROM seat WHERE id = 5";
    expect((await connection.query(taken))[0]).toEqual([{ taken_by: null }]);
  });

  test("sell a cart of Medusa once, also when it is completed twice at a time, and return it once", async () => {
    await cli("inventory", "set", "lamp", "2", "--store", postgres.url);
    const answers = await calling(
      "medusa.ts",
      `const lines = [{ id: "line-1", sku: "lamp", quantity: 1 }];
       const sell = (cart: string, attempt: string) => start.sellCart(cart, attempt, lines);
       const both = await Promise.all([sell("cart-1", "medusa-1"), sell("cart-1", "medusa-2")]);
       console.log(both.toSorted().join());
       await start.returnCart("cart-1", "medusa-3", lines); // not the attempt that has sold
       console.log(await sell("cart-2", "medusa-4"), await sell("cart-3", "medusa-5"));
       await start.returnCart("cart-2", "medusa-4", lines);
       await start.returnCart("cart-2", "medusa-4", lines);
       console.log(await sell("cart-2", "medusa-6"), await sell("cart-3", "medusa-7"));`,
    );
    expect(answers).toEqual(["sold,the cart is being completed", "sold sold out", "sold sold out"]);
  });

  test("serve the stock over HTTP to whoever has the token", async () => {
    const get = httpApiEvent({ rawPath: "/stock/cup" });
    const answers = await calling(
      "http.ts",
      `process.env.LOCKSTEP_TOKEN = "a-token-of-our-own";
       const get = ${JSON.stringify(get)};
       const headers = { ...get.headers, authorization: "Bearer a-token-of-our-own" };
       for (const event of [get, { ...get, headers }]) {
         const { statusCode, body } = await start.handler(event, context);
         console.log(statusCode, body);
       }`,
    );
    const [, refused, , answered] = answers;
    expect(refused).toMatch(/^401 /);
    expect(answered).toMatch(/^200 .*"onHand":1/);
  });
});

const COMMANDS = blocks("sh")
  .join("\n")
  .replaceAll("\\\n", " ")
  .split("\n")
  .map((line) => line.replace(/#.*/, "").trim())
  .filter(Boolean);

describe("the commands of the docs, one after the other", () => {
  let folder: string;

  beforeAll(async () => {
    folder = await folderOf("commands");
  });

  afterAll(() => runs("lockstep servers down"));

  const runs = (command: string) => {
    const PATH = `${join(project, "bin")}:${process.env.PATH}`;
    const env = { ...process.env, PATH, XDG_STATE_HOME: join(folder, "state") };
    return run("sh", ["-c", onOurServers(command)], { cwd: folder, env });
  };

  test("the commands of the documentation are found", () =>
    expect(COMMANDS.length).toBeGreaterThan(15));

  test.each(COMMANDS)("%s", async (command) => {
    await runs(command);
  });
});

test("the crontabs of the docs run one at a time, and one run per night", async () => {
  const lines = blocksOf(pageAt("docs/start.md"), "text").map((block) => block.trim());
  const commands = lines.map((line) => {
    const [, command = ""] = /^\d+ \d+ \* \* \* (.*)$/.exec(line) ?? [];
    return command.replaceAll("\\%", "%");
  });
  expect(commands).toHaveLength(2);
  const folder = await folderOf("crontab");
  await mkdir(join(folder, "node_modules/.bin"), { recursive: true });
  await symlink(join(project, "node_modules/lockstep"), join(folder, "node_modules/lockstep"));
  await symlink(join(project, "node_modules/zod"), join(folder, "node_modules/zod"));
  await symlink(MAIN, join(folder, "node_modules/.bin/lockstep"));
  await writeFile(join(folder, ".env"), `LOCKSTEP_STORE=${postgres.url}`);
  const ticks = `import { appendFileSync } from "node:fs";
    appendFileSync("ticks", "begin ");
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    appendFileSync("ticks", "end ");`;
  await writeFile(join(folder, "report.js"), ticks);
  const nightly = examples.get("nightly.mjs") ?? "";
  await writeFile(
    join(folder, "nightly.mjs"),
    nightly.replace(/^.*throwIfAborted.*$/m, 'await import("./report.js");'),
  );
  const env = { ...process.env, PATH: `${dirname(process.execPath)}:${process.env.PATH}` };
  const [atATime = "", perNight = ""] = commands.map((line) => line.replace("/srv/report", folder));
  const onMachines = (count: number, command: string) =>
    Promise.all(Array.from({ length: count }, () => run("sh", ["-c", command], { env })));
  await onMachines(3, atATime); // each ends with 0
  expect(await readFile(join(folder, "ticks"), "utf8")).toMatch(/^(begin end )+$/);
  await writeFile(join(folder, "ticks"), "");
  await onMachines(3, perNight);
  await onMachines(1, perNight); // later in the same night
  expect(await readFile(join(folder, "ticks"), "utf8")).toBe("begin end ");
});

test("the requests of the docs are answered", async () => {
  const [setting = "", serving = "", ...requests] = (blocks("bash")[0] ?? "").trim().split("\n");
  const [, token = ""] = /LOCKSTEP_TOKEN=(\S+)/.exec(setting) ?? [];
  const folder = await folderOf("requests");
  const env = { ...process.env, LOCKSTEP_TOKEN: token, XDG_STATE_HOME: join(folder, "state") };
  const words = serving.replace(/^lockstep | &$/g, "").split(" ");
  const server = runNode([MAIN, ...words, "--port", "0"], { cwd: folder, env });
  const { url } = JSON.parse(await server.line());
  expect(requests).toHaveLength(5);
  const answers: unknown[] = [];
  for (const request of requests) {
    const line = request.replace("http://127.0.0.1:4500", url).replace("curl", "curl -fsS");
    answers.push(JSON.parse((await run("sh", ["-c", line], { cwd: folder, env })).stdout));
  }
  server.child.kill("SIGTERM");
  expect(await server.ended).toBe(0);
  expect(answers[1]).toMatchObject({ status: "completed", output: { sku: "cup", onHand: 5 } });
  expect(answers[3]).toMatchObject({ outcome: "applied", remaining: 3 });
});

test("the worker of the page of containers answers its probe, and ends with 0 on TERM", async () => {
  const [manifest = ""] = blocksOf(pageAt("docs/containers.md"), "yaml");
  const [, line = ""] = /args: \[(.*)\]/.exec(manifest) ?? [];
  const [, probe] = /livenessProbe: \{ httpGet: \{ path: (\S+), port: 9464 \}/.exec(manifest) ?? [];
  const [command, ...words] = line.split(", ").map((word) => word.replaceAll('"', ""));
  expect(command).toBe("node_modules/.bin/lockstep");
  const folder = await folderOf("container");
  const env = { ...process.env, LOCKSTEP_STORE: `sqlite:${join(folder, "container.db")}` };
  const args = words.map((word) => (word === "9464" ? "0" : word));
  using worker = runNode([MAIN, ...args], { cwd: folder, env });
  const url = new URL(JSON.parse(await worker.line()).metrics);
  expect(url.pathname).toBe(probe);
  const answer = await fetch(`http://127.0.0.1:${url.port}${probe}`);
  expect(answer.status).toBe(200);
  expect(await answer.text()).toContain("lockstep_journal_up 1");
  worker.child.kill("SIGTERM");
  expect(await worker.ended).toBe(0);
});
