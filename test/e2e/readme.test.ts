import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import mysql, { type Connection } from "mysql2/promise";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { cli, MAIN } from "../support/cli.ts";
import { copyOfProject } from "../support/copy.ts";
import { runNode } from "../support/script.ts";
import { temporaryDatabase } from "../support/under-test.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const readme = await readFile(join(root, "README.md"), "utf8");

const blocks = (language: string) =>
  [...readme.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"))].map(
    ([, code]) => code ?? "",
  );

const [etcd] = inject("etcdServers");
const [zookeeper] = inject("zookeeperServers");

let copy: Awaited<ReturnType<typeof copyOfProject>>;
let project: string;
let database: Awaited<ReturnType<typeof temporaryDatabase>>;
let connection: Connection;

/** A project that has the package as a dependency, a server behind it, and the command on its path. */
beforeAll(async () => {
  const [server] = inject("sqlServers");
  if (!server) throw new Error("there is no server");
  database = await temporaryDatabase(server);
  connection = await mysql.createConnection(database.url);
  await connection.query("CREATE TABLE seat (id INT PRIMARY KEY, taken INT NOT NULL)");
  await connection.query("INSERT INTO seat VALUES (1, 1), (2, 0), (3, 0), (4, 0)");
  await cli("migrate", "--store", database.url);
  copy = await copyOfProject();
  await run("npm", ["run", "build"], { cwd: copy.folder });
  project = await mkdtemp(join(tmpdir(), "lockstep-readme-"));
  await mkdir(join(project, "node_modules"));
  await symlink(join(root, "node_modules/zod"), join(project, "node_modules/zod"));
  await symlink(copy.folder, join(project, "node_modules/lockstep"));
  await mkdir(join(project, "bin"));
  const main = join(root, "functions/cli/main.ts");
  await writeFile(
    join(project, "bin/lockstep"),
    `#!/bin/sh\nexec "${process.execPath}" "${main}" "$@"\n`,
  );
  await writeFile(join(project, "report.js"), "");
  await writeFile(join(project, "job.sh"), "#!/bin/sh\n");
  await writeFile(join(project, "order.mjs"), ORDER_MODULE);
  await writeFile(
    join(project, "orders.jsonl"),
    '{"orderId":"order-11","sku":"teapot","quantity":1}\n',
  );
  await chmod(join(project, "bin/lockstep"), 0o755);
  await chmod(join(project, "job.sh"), 0o755);
}, 120_000);

/** Stands for a module of the reader's. */
const ORDER_MODULE = `
  import { workflow } from "lockstep/steps";
  import { z } from "zod";
  const Order = z.object({ id: z.string(), sku: z.string(), quantity: z.number() });
  export default ({ inventory }) =>
    workflow({ name: "order", version: 1, input: Order, id: ({ id }) => id }, (ctx, { sku }) =>
      ctx.step.tx("look", { lock: "sku/" + sku }, ({ tx }) => inventory.within(tx).get(sku)));
`;

afterAll(async () => {
  await connection.end();
  await database.drop();
  await rm(project, { recursive: true, force: true });
  await copy[Symbol.asyncDispose]();
});

/** With the test's own server in place of the one that the README names. */
const here = (code: string) =>
  code
    .replace("mysql://root@127.0.0.1/shop", database.url)
    .replace("127.0.0.1:2379", etcd?.endpoints[0] ?? "")
    .replace("127.0.0.1:2181", zookeeper?.servers[0] ?? "")
    .replace("port: 3306", `port: ${database.options.port}`)
    .replace('database: "shop"', `database: "${database.options.database}"`);

test("the README's programs do what they say", async () => {
  const programs = blocks("ts");
  expect(programs).toHaveLength(8);
  const env = { ...process.env, LOCKSTEP_TOKEN: "a-token-of-our-own" };
  const outputs: string[] = [];
  for (const [i, program] of programs.entries()) {
    await writeFile(join(project, `example-${i}.mts`), here(program));
    const options = { cwd: project, env };
    outputs.push((await run(process.execPath, [`example-${i}.mts`], options)).stdout);
  }
  const [said] = /\{ outcome.*?\}/.exec(programs[0] ?? "") ?? [];
  expect(outputs[0]?.trim()).toBe(said);
  expect(outputs[2]?.trim()).toBe("true host-7");
  expect(outputs[3]?.trim()).toBe("host-7");
  expect(outputs[4]?.trim()).toBe("completed 3");
  expect(outputs[7]?.trim()).toBe("sold-out 0");
  const [seats] = await connection.query("SELECT id FROM seat WHERE taken = 1 ORDER BY id");
  expect(seats).toEqual([{ id: 1 }, { id: 2 }, { id: 3 }]);
});

test("the README's commands run", async () => {
  const commands = blocks("sh")
    .join("\n")
    .replaceAll("\\\n", " ")
    .split("\n")
    .map((line) => line.replace(/#.*/, "").trim())
    .filter(Boolean);
  expect(commands.length).toBeGreaterThan(7);
  const env = { ...process.env, PATH: `${join(project, "bin")}:${process.env.PATH}` };
  for (const command of commands) {
    await run("sh", ["-c", here(command)], { cwd: project, env });
  }
  await run("sh", ["-c", "lockstep servers down"], { cwd: project, env });
}, 180_000);

test("the README's requests are answered", async () => {
  const [setting = "", serving = "", ...requests] = (blocks("bash")[0] ?? "").trim().split("\n");
  const [, token = ""] = /LOCKSTEP_TOKEN=(\S+)/.exec(setting) ?? [];
  const env = { ...process.env, LOCKSTEP_TOKEN: token };
  const words = serving.replace(/^lockstep | &$/g, "").split(" ");
  const server = runNode([MAIN, ...words, "--port", "0"], { cwd: project, env });
  const { url } = JSON.parse(await server.line());
  expect(requests).toHaveLength(5);
  const answers: unknown[] = [];
  for (const request of requests) {
    const line = request.replace("http://127.0.0.1:4500", url).replace("curl", "curl -fsS");
    answers.push(JSON.parse((await run("sh", ["-c", line], { cwd: project, env })).stdout));
  }
  server.child.kill("SIGTERM");
  expect(await server.ended).toBe(0);
  expect(answers[1]).toMatchObject({ status: "completed", output: { sku: "cup", onHand: 5 } });
  expect(answers[3]).toMatchObject({ outcome: "applied", remaining: 3 });
}, 60_000);
