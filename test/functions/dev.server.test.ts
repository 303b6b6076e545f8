import { execFile } from "node:child_process";
import { access, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, type TestContext, test } from "vitest";
import { findOrThrow } from "../../infra/servers/binaries.ts";
import { MAIN, startCli } from "../support/cli.ts";
import { runNode } from "../support/script.ts";
import { pause, until, within } from "../support/until.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

const moduleText = (word: string) => `
  import { writeFileSync } from "node:fs";
  import { z } from "${root}node_modules/zod/index.js";
  import { workflow } from "${root}core/steps/index.ts";
  import { polite } from "./polite.ts";

  const Input = z.object({ name: z.string(), sleep: z.number().default(0), marker: z.string().optional() });

  export const greet = workflow({ name: "greet", version: 1, input: Input }, async (ctx, { name, sleep, marker }) => {
    if (marker) {
      await ctx.step("slow", async () => {
        writeFileSync(marker, "");
        await new Promise((resolve) => setTimeout(resolve, 6_000));
      });
      await ctx.step("after", async () => {});
    }
    if (sleep > 0) await ctx.sleep("nap", sleep);
    return ctx.step("say", async () => polite(\`${word} \${name}\`));
  });

  export default ({ inventory }) => workflow({ name: "sell", version: 1, input: z.object({ sku: z.string() }) }, async (ctx, { sku }) =>
    ctx.step.tx("sell", { lock: \`sku/\${sku}\` }, ({ tx, fence, idempotencyKey }) =>
      inventory.within(tx).decrement({ sku, quantity: 1, operationId: idempotencyKey, fence })));
`;

/** A folder with a module, of which a part stands in a file of its own. */
async function newProject({ onTestFinished }: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-dev-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const write = (file: string, text: string) => writeFile(join(folder, file), text);
  const polite = (end: string) =>
    write("polite.ts", `export const polite = (text: string): string => text + "${end}";`);
  await polite("!");
  await write("greet.ts", moduleText("hello"));
  return { folder, write, polite };
}

const exists = (file: string) =>
  access(file).then(
    () => true,
    () => false,
  );

/** `lockstep dev` in a folder, with curl to ask it. */
async function startDev({ onTestFinished }: TestContext, cwd: string, ...args: readonly string[]) {
  const env = { ...process.env, LOCKSTEP_STORE: undefined, XDG_STATE_HOME: cwd };
  const script = runNode([MAIN, "dev", ...args, "--port", "0"], { cwd, env });
  onTestFinished(() => script[Symbol.dispose]());
  const { url, token, docs } = JSON.parse(await script.line());
  const log: { readonly operation: string; readonly status: number }[] = [];
  const logged = (async () => {
    for (let line = await script.next(); line; line = await script.next()) {
      log.push(JSON.parse(line));
    }
  })();
  const program = await findOrThrow({ binaries: ["curl"], packages: ["curl"] }, () => {});
  const curl = async (path: string, ...words: readonly string[]) => {
    const options = ["-sS", "-i", "-H", `Authorization: Bearer ${token}`, ...words];
    const { stdout } = await run(program, [...options, url + path]);
    const [head = "", body = ""] = stdout.split(/\r\n\r\n(?!HTTP)/);
    const isJson = /^content-type: application\/(problem\+)?json/im.test(head);
    return {
      status: Number(/^HTTP\/1\.1 (\d+)/.exec(head)?.[1]),
      head,
      body: isJson ? JSON.parse(body) : body,
    };
  };
  const post = (path: string, key: string, body: unknown) =>
    curl(path, "-H", `Idempotency-Key: ${key}`, "--json", JSON.stringify(body));
  return { ...{ script, url, token, docs, log, logged, curl, post } };
}

test.concurrent("lockstep dev serves a module's workflows, its stock and a page", async (context) => {
  const { folder } = await newProject(context);
  const { curl, post, token, docs, log, url } = await startDev(context, folder, "greet.ts");
  expect(token).toMatch(/^\S{32}$/);
  expect(new URL(url).hostname).toBe("127.0.0.1");
  const body = { name: "Ada" };
  const first = await post("/workflows/greet/runs", "run-1", body);
  expect(first).toMatchObject({ status: 200, body: { runId: "run-1", output: "hello Ada!" } });
  const again = await post("/workflows/greet/runs", "run-1", body);
  expect(again.head).toMatch(/^idempotent-replayed: true/im);
  expect(again.body).toEqual(first.body);
  const key = ["-H", "Idempotency-Key: count-1", "-H", "content-type: application/json"];
  await curl("/stock/teapot", "-X", "PUT", ...key, "-d", '{"quantity": 5}');
  expect(await post("/workflows/sell/runs", "order-1", { sku: "teapot" })).toMatchObject({
    ...{ status: 200, body: { output: { outcome: "applied", remaining: 4 } } },
  });
  expect((await curl("/stock/teapot")).body).toMatchObject({ onHand: 4, sold: 1 });
  expect((await curl("/ready")).body).toMatchObject({ status: "ready" });
  expect((await fetch(docs)).status).toBe(200);
  expect((await fetch(`${url}/ready`)).status).toBe(401);
  await until(() => log.some(({ operation, status }) => operation === "ready" && status === 401));
  // A run that sleeps is gone on with, though nobody asks.
  const slept = await post("/workflows/greet/runs", "run-2", { name: "Bo", sleep: 5_000 });
  expect(slept.status).toBe(202);
  const woken = await until(async () => {
    const { body } = await curl("/runs/run-2");
    return body.status === "completed" && body;
  });
  expect(woken.output).toBe("hello Bo!");
});

/** Returns the current greeting of Ada, from a new run each time. */
function greetingsBy(post: Awaited<ReturnType<typeof startDev>>["post"]) {
  let runs = 0;
  const greeting = async () => {
    runs += 1;
    return (await post("/workflows/greet/runs", `run-${runs}`, { name: "Ada" })).body.output;
  };
  return { greeting, comes: (text: string) => until(async () => (await greeting()) === text) };
}

test.concurrent("lockstep dev reloads the module with its imports, and keeps the old one while the new one is broken", async (context) => {
  const { folder, write, polite } = await newProject(context);
  const { post } = await startDev(context, folder, "greet.ts");
  const { greeting, comes } = greetingsBy(post);
  expect(await greeting()).toBe("hello Ada!");
  const marker = join(folder, "begun");
  const underWay = post("/workflows/greet/runs", "slow", { name: "Ada", marker });
  await until(() => exists(marker));
  await polite(", dear!");
  await comes("hello Ada, dear!");
  // The run in progress ends with the old module.
  expect(await underWay).toMatchObject({ status: 200, body: { output: "hello Ada!" } });
  await write("greet.ts", moduleText("good morning"));
  await comes("good morning Ada, dear!");
  await write("polite.ts", "export const polite = ;");
  await pause(500);
  expect(await greeting()).toBe("good morning Ada, dear!");
  await polite(".");
  await comes("good morning Ada.");
});

test.concurrent("lockstep dev drops a slow load when a newer one has started", async (context) => {
  const { folder, write } = await newProject(context);
  const { post } = await startDev(context, folder, "greet.ts");
  const greeting = async (key: string) =>
    (await post("/workflows/greet/runs", key, { name: "Ada" })).body.output;
  const marker = join(folder, "loading");
  const wait = "await new Promise((resolve) => setTimeout(resolve, 1_500));";
  await write("greet.ts", `${moduleText("slow")}writeFileSync("${marker}", ""); ${wait}`);
  await until(() => exists(marker));
  await write("greet.ts", moduleText("quick"));
  let runs = 0;
  await until(async () => {
    runs += 1;
    return (await greeting(`run-${runs}`)) === "quick Ada!";
  });
  await pause(1_700);
  expect(await greeting("after")).toBe("quick Ada!");
});

test.concurrent("on a signal lockstep dev answers active requests, parks the run and closes idle connections", async (context) => {
  const { folder } = await newProject(context);
  const { script, post, url } = await startDev(context, folder, "greet.ts");
  const { hostname, port } = new URL(url);
  const idle = connect(Number(port), hostname);
  idle.write(`GET /health HTTP/1.1\r\nHost: ${hostname}\r\n\r\n`);
  await new Promise((resolve) => idle.once("data", resolve));
  const marker = join(folder, "begun");
  const answer = post("/workflows/greet/runs", "run-1", { name: "Ada", marker });
  await until(() => exists(marker));
  script.child.kill("SIGTERM");
  expect(await answer).toMatchObject({ status: 202, body: { reason: "deadline" } });
  expect(await within(60_000, script.ended)).toBe(0);
  const next = await startDev(context, folder, "greet.ts");
  const done = await until(async () => {
    const { body } = await next.curl("/runs/run-1");
    return body.status === "completed" && body;
  });
  expect(done.timeline.map(({ key }: { key: string }) => key)).toEqual(["slow", "after", "say"]);
  next.script.child.kill("SIGINT");
  expect(await within(60_000, next.script.ended)).toBe(0);
  await next.logged;
});

test.concurrent("lockstep dev reloads an imported file that was removed and created again", async (context) => {
  const { folder, write } = await newProject(context);
  const words = join(folder, "words");
  const put = async (word: string) => {
    await mkdir(words, { recursive: true });
    await write("words/word.ts", `export const word = "${word}";`);
  };
  await put("hello");
  await write("greet.ts", `import { word } from "./words/word.ts"; ${moduleText(`\${word}`)}`);
  const { post } = await startDev(context, folder, "greet.ts");
  const { greeting, comes } = greetingsBy(post);
  expect(await greeting()).toBe("hello Ada!");
  await rm(words, { recursive: true });
  await pause(500);
  expect(await greeting()).toBe("hello Ada!");
  await put("welcome");
  await comes("welcome Ada!");
  await put("good evening");
  await comes("good evening Ada!");
});

test.concurrent("on a second signal lockstep dev aborts running steps, and other processes resume their runs", async (context) => {
  const { folder, write } = await newProject(context);
  const marker = join(folder, "begun");
  await write("greet.ts", moduleText("hello").replace("6_000", "60_000"));
  const { script, post } = await startDev(context, folder, "greet.ts", "--grace", "60s");
  const answer = post("/workflows/greet/runs", "run-1", { name: "Ada", marker });
  await until(() => exists(marker));
  script.child.kill("SIGINT");
  // Two at once count as one, and a busy process may get both at once.
  const isAnswered = () => within(5_000, answer).catch(() => false);
  await pause(500);
  do script.child.kill("SIGINT");
  while (!(await isAnswered()));
  expect(await within(60_000, answer)).toMatchObject({ status: 202, body: { reason: "deadline" } });
  expect(await within(60_000, script.ended)).toBe(0);
});

test.concurrent("lockstep dev ends on a signal while a module hangs in loading", async (context) => {
  const { folder, write } = await newProject(context);
  const marker = join(folder, "loading");
  const wait = "await new Promise((resolve) => setTimeout(resolve, 60_000));";
  await write("greet.ts", `${moduleText("slow")}writeFileSync("${marker}", ""); ${wait}`);
  const { child, finished } = startCli(["dev", "greet.ts", "--port", "0"], { cwd: folder });
  await until(() => exists(marker));
  child.kill("SIGINT");
  expect(await within(60_000, finished)).toMatchObject({ status: "SIGINT" });
});

test.concurrent("without a module lockstep dev serves stock only, and does not print a given token", async (context) => {
  const { folder } = await newProject(context);
  const env = { LOCKSTEP_TOKEN: "a-token-of-one's-own" };
  const { child, finished } = startCli(["dev", "--port", "0"], { cwd: folder, env });
  const line = await new Promise<string>((resolve) => child.stdout?.once("data", resolve));
  const { url } = JSON.parse(String(line));
  const headers = { authorization: `Bearer ${env.LOCKSTEP_TOKEN}` };
  expect((await fetch(`${url}/stock/nothing`, { headers })).status).toBe(404);
  const taken = await startCli(["dev", "--port", new URL(url).port], { cwd: folder }).finished;
  expect(taken).toMatchObject({ status: 64, stderr: expect.stringContaining("cannot listen") });
  child.kill("SIGTERM");
  const { status, stdout, stderr } = await finished;
  expect(status).toBe(0);
  expect(`${line}${stdout}${stderr}`).not.toContain(env.LOCKSTEP_TOKEN);
});

test.concurrent("lockstep dev exits with 64 for misuse", async (context) => {
  const { folder } = await newProject(context);
  const misuses: readonly (readonly [readonly string[], string])[] = [
    [["nothing.ts"], "the file nothing.ts does not exist"],
    [["--port", "x"], "--port must be a whole number"],
    [["--port", "65536"], "--port must be"],
    [["--grace", "soon"], "--grace must be a duration"],
  ];
  const ended = misuses.map(async ([args, message]) => {
    const { status, stderr } = await startCli(["dev", ...args], { cwd: folder }).finished;
    expect({ status, stderr }).toEqual({ status: 64, stderr: expect.stringContaining(message) });
  });
  await Promise.all(ended);
});
