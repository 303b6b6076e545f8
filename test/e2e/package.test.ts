import { execFile } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { copyOfProject } from "../support/copy.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

let project: string;

/** Only what a user has: the packed package and its dependencies, in a project of their own. */
beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), "lockstep-package-"));
  await using copy = await copyOfProject();
  await run("npm", ["pack", "--pack-destination", project], { cwd: copy.folder });
  const [tarball = ""] = await readdir(project);
  await writeFile(join(project, "package.json"), '{ "private": true, "type": "module" }');
  await run("npm", ["install", "--no-audit", "--no-fund", join(project, tarball)], {
    cwd: project,
  });
}, 180_000);

afterAll(() => rm(project, { recursive: true, force: true }));

const node = (script: string) =>
  run(process.execPath, ["--input-type=module", "--eval", script], { cwd: project });

test("every entry point imports, and the store that needs no client works", async () => {
  const { stdout } = await node(`
    import { LockError } from "lockstep";
    import { memoryStore } from "lockstep/memory";
    import { stockLock } from "lockstep/inventory";
    import { sql } from "lockstep/database";
    import { open } from "lockstep/open";
    import { withLock } from "lockstep/edge";
    import { queueHandler } from "lockstep/lambda";
    import { openSqlite, sqliteStore } from "lockstep/sqlite";
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

test("the command runs from the package", async () => {
  const { stdout } = await run("npx", ["--no-install", "lockstep", "--version"], { cwd: project });
  expect(stdout.trim()).toMatch(/^\d+\.\d+\.\d+$/);
  const size = ["--stock", "4", "--buyers", "8", "--workers", "2", "--slow", "0", "--freezes", "1"];
  const replay = ["--no-install", "lockstep", "oversell", "--json", ...size];
  const { strategies } = JSON.parse((await run("npx", replay, { cwd: project })).stdout);
  expect(strategies.at(-1)).toMatchObject({ name: "lockstep", sold: 4, oversold: 0 });
}, 60_000);

test("types are there for every entry point", async () => {
  await writeFile(
    join(project, "use.mts"),
    `import { open, type Opened } from "lockstep/open";
     import type { Fence, Lock } from "lockstep";
     import { sqlInventory, type Answer } from "lockstep/inventory";
     import { memoryStore } from "lockstep/memory";
     import { bearer, createApp, type HttpHandler, httpHandler } from "lockstep/http";
     import { serveHttp, swaggerPage } from "lockstep/http/node";
     const app = createApp({ authorize: bearer(["a-token-of-sixteen"]), page: await swaggerPage() });
     const handler: HttpHandler = httpHandler(app);
     await serveHttp(app);
     const opened: Opened = await open("memory:");
     const lock: Lock | undefined = await memoryStore().tryLock("a", { ttl: 1000 });
     const fence: Fence | undefined = lock?.fence;
     // @ts-expect-error a ttl is a number of milliseconds
     await opened.locks.tryLock("a", { ttl: "5s" });
     export type { Answer };
     export { fence, handler, sqlInventory };`,
  );
  const options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2024"];
  const lib = ["--lib", "es2024,esnext.disposable", "--types", "node", "--typeRoots"];
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const roots = join(root, "node_modules/@types");
  await run(process.execPath, [tsc, ...options, ...lib, roots, "use.mts"], { cwd: project });
}, 60_000);
