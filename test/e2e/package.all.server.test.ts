import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type PackedProject, packedProject } from "../support/packed-project.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

let packed: PackedProject;
let project: string;

beforeAll(async () => {
  packed = await packedProject();
  project = packed.folder;
}, 600_000);

afterAll(() => packed?.[Symbol.asyncDispose]());

const node = (script: string) =>
  run(process.execPath, ["--input-type=module", "--eval", script], { cwd: project });

test("every entry point imports without any peer", async () => {
  const { exports } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const entries = Object.keys(exports).filter((entry) => entry !== "./package.json");
  expect(entries).toContain("./powertools");
  for (const entry of entries) {
    const { stdout } = await node(`
      console.log(Object.keys(await import("lockstep${entry.slice(1)}")).length);
    `);
    expect(Number(stdout), entry).toBeGreaterThan(0);
  }
});

test("Powertools' layer says what to install", async () => {
  const script = `
    import { JournalPersistenceLayer } from "lockstep/powertools";
    await new JournalPersistenceLayer({}).saveInProgress({});
  `;
  const peer = "@aws-lambda-powertools/idempotency";
  await expect(node(script)).rejects.toMatchObject({
    stderr: expect.stringContaining(`needs the package ${peer}: npm install ${peer}`),
  });
});

test("the store that needs no client works", async () => {
  const { stdout } = await node(`
    import { LockError } from "lockstep";
    import { openMemory } from "lockstep/memory";
    import { stockLock } from "lockstep/inventory";
    import { sql } from "lockstep/database";
    import { open } from "lockstep/open";
    import { lockedFetch } from "lockstep/edge";
    import { queueHandler } from "lockstep/lambda";
    import { openSqlite } from "lockstep/sqlite";
    const { locks, inventory, close } = await open("sqlite:shop.db");
    await inventory.set({ sku: "a", quantity: 2, operationId: "1" });
    const lock = await locks.lock(stockLock("a"), { ttl: 5000, wait: 0 });
    const answer = await inventory.decrement({ sku: "a", quantity: 1, operationId: "2", fence: lock.fence });
    console.log(JSON.stringify([await lock.unlock(), answer.remaining, typeof LockError, sql\`x\`.texts]));
    await close();
  `);
  expect(JSON.parse(stdout)).toEqual(["released", 1, "function", ["x"]]);
});

test("a store whose client is not installed says what to install", async () => {
  const script = 'import { open } from "lockstep/open"; await open("mysql://root@localhost/shop");';
  await expect(node(script)).rejects.toMatchObject({
    stderr: expect.stringContaining("npm install mysql2"),
  });
});

test.each([
  ["mysql", 'openMysql({ host: "localhost", user: "root", database: "shop" })', "mysql2"],
  ["postgres", 'openPostgres({ host: "localhost", user: "shop", database: "shop" })', "pg"],
  ["redis", 'openRedis({ host: "localhost" })', "ioredis"],
  ["etcd", 'openEtcd({ leaseClient: {}, options: { hosts: "localhost" } })', "etcd3"],
])(
  "lockstep/%s imports without its client, and its use says what to install",
  async (entry, opened, peer) => {
    const name = opened.replace(/\(.*/, "");
    const script = `import { ${name} } from "lockstep/${entry}"; await ${opened};`;
    await expect(node(script)).rejects.toMatchObject({
      stderr: expect.stringContaining(`needs the package ${peer}: npm install ${peer}`),
    });
  },
);

/** Clients that a user who has not asked for them does not have. */
test.each([
  [["list", "--store", "mysql://root@127.0.0.1:1/shop"], "npm install mysql2"],
  [["list", "--store", "redis://127.0.0.1:1"], "npm install ioredis"],
])("%j says in one line what to install, and does nothing", async (args, cure) => {
  const failed = run(join(project, "node_modules/.bin/lockstep"), args, { cwd: project });
  await expect(failed).rejects.toMatchObject({ code: 64, stdout: "" });
  const { stderr } = await failed.catch((error) => error);
  expect(stderr).toMatch(new RegExp(`^lockstep: .*: ${cure}\n$`));
});

test("lockstep dev without the page's package says what to install, and serves without the page", async () => {
  const env = { ...process.env, XDG_STATE_HOME: project };
  const main = join(project, "node_modules/.bin/lockstep");
  const child = spawn(main, ["dev", "--port", "0"], { cwd: project, env });
  const said = text(child.stderr);
  const [line] = await once(createInterface({ input: child.stdout }), "line");
  const { url, token, console: page, ...rest } = JSON.parse(line);
  expect(rest).toEqual({});
  expect(await (await fetch(page)).text()).toContain("<script");
  const headers = { authorization: `Bearer ${token}` };
  expect((await fetch(`${url}/ready`, { headers })).status).toBe(200);
  child.kill("SIGTERM");
  expect(await said).toContain("lockstep: the page needs the package swagger-ui-dist: npm install");
});

const { stdout: systemNode } = await run("/usr/bin/node", ["--version"]).catch(() => ({
  stdout: "",
}));
const isOld = /^v(1\d|20|21)\./.test(systemNode);

test.runIf(isOld)("an old Node is told that it is one, and nothing else", async () => {
  const main = join(project, "node_modules/lockstep/dist/functions/cli/main.js");
  const failed = run("/usr/bin/node", [main, "list"], { cwd: project });
  await expect(failed).rejects.toMatchObject({
    code: 69,
    stdout: "",
    stderr: expect.stringMatching(/^lockstep: needs Node 22\.18 or later; .*\n$/),
  });
});

test("the command runs from the package", async () => {
  const { stdout } = await run("npx", ["--no-install", "lockstep", "--version"], { cwd: project });
  expect(stdout.trim()).toMatch(/^\d+\.\d+\.\d+$/);
  const size = ["--stock", "4", "--buyers", "8", "--workers", "2", "--slow", "0", "--freezes", "1"];
  const env = { ...process.env, XDG_STATE_HOME: project };
  const files = ["--report", "incident.html", "--picture", "incident.svg"];
  const replay = ["--no-install", "lockstep", "oversell", "--json", ...size, ...files];
  const { strategies } = JSON.parse((await run("npx", replay, { cwd: project, env })).stdout);
  expect(strategies.at(-1)).toMatchObject({ name: "lockstep", sold: 4, oversold: 0 });
});

test("the alert rules and the dashboard are in the package", async () => {
  for (const file of ["alerts.yml", "dashboard.json"]) {
    const packaged = join(project, "node_modules/lockstep/dist/infra/monitoring", file);
    const source = join(root, "infra/monitoring", file);
    expect(await readFile(packaged, "utf8")).toBe(await readFile(source, "utf8"));
  }
});

test("types are there for every entry point", async () => {
  await writeFile(
    join(project, "use.mts"),
    `import { type AnyStore, open } from "lockstep/open";
     import type { Fence, Lock } from "lockstep";
     import type { StockResult } from "lockstep/inventory";
     import { openSqlite, type SqlStore } from "lockstep/sqlite";
     import { openMemory } from "lockstep/memory";
     import { bearer, createApp, httpHandler } from "lockstep/http";
     import { serveHttp, swaggerPage } from "lockstep/http/node";
     const app = createApp({ authorize: bearer(["a-token-of-sixteen"]), page: await swaggerPage() });
     const handler = httpHandler(app);
     await serveHttp(app);
     const opened: AnyStore = await open(process.argv[2] ?? "memory:");
     const shop: SqlStore = await open("sqlite:shop.db");
     const lock: Lock | undefined = await (await openMemory()).locks.tryLock("a", { ttl: 1000 });
     const fence: Fence | undefined = lock?.fence;
     await opened.locks.tryLock("a", { ttl: "5s" });
     // @ts-expect-error a duration in a text has a unit
     await opened.locks.tryLock("a", { ttl: "5" });
     export type { StockResult };
     export { fence, handler, openSqlite, shop };`,
  );
  const options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2024"];
  const lib = ["--lib", "es2024,esnext.disposable", "--types", "node", "--typeRoots"];
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const roots = join(root, "node_modules/@types");
  await run(process.execPath, [tsc, ...options, ...lib, roots, "use.mts"], { cwd: project });
});
