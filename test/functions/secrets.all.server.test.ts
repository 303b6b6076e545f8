import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createRuntime } from "../../core/steps/runtime.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { createApp } from "../../functions/http/app.ts";
import { bearer } from "../../functions/http/auth.ts";
import {
  combineTelemetry,
  emf,
  logTelemetry,
  metricTelemetry,
} from "../../functions/telemetry/index.ts";
import { open } from "../../infra/open.ts";
import { temporaryFolder } from "../../infra/servers/reap.ts";
import { leaky } from "../programs/leaky.ts";
import { startCli } from "../support/cli.ts";
import { cliInProcess } from "../support/cli-in-process.ts";
import { servingConsole } from "../support/console.ts";
import { anyPrefix, openLocal, redisServer } from "../support/redis-under-test.ts";
import { until } from "../support/until.ts";

/** Every secret has this word, and no output may have it. */
const CANARY = "canary";
const PASSWORD = `${CANARY}-pass%2Fw%40rd`;
const TOKEN = `${CANARY}-token-of-16-characters`;
const FENCES = `${CANARY}-secret-of-the-fences`;
const LEAKY = fileURLToPath(new URL("../programs/leaky.ts", import.meta.url));
const NOWHERE = "localhost:1";

/** A store of each scheme, where nobody listens. */
const AWAY = [
  ...["mysql", "mysqls", "postgres", "postgresql"].map(
    (scheme) => `${scheme}://shop:${PASSWORD}@${NOWHERE}/shop`,
  ),
  ...["etcd", "etcds", "etcd+http", "etcd+https", "redis", "rediss", "redlock", "redlocks"].map(
    (scheme) => `${scheme}://shop:${PASSWORD}@${NOWHERE}`,
  ),
  ...["redis+cluster", "rediss+cluster", "zookeeper", "zookeepers"].map(
    (scheme) => `${scheme}://shop:${PASSWORD}@${NOWHERE}`,
  ),
  ...["redis+sentinel", "rediss+sentinel"].map(
    (scheme) =>
      `${scheme}://shop:${PASSWORD}@${NOWHERE}/master?sentinel-user=watcher&sentinel-password=${PASSWORD}`,
  ),
  ...["redis+http", "redis+https"].map((scheme) => `${scheme}://:${TOKEN}@${NOWHERE}`),
  `dynamodb://shop:${PASSWORD}@local/shop?endpoint=http://${NOWHERE}`,
];
const [MYSQL = ""] = AWAY;

function expectSecrecy(texts: readonly string[]): void {
  const all = texts.join("\n");
  expect(all.length).toBeGreaterThan(20);
  expect(all).not.toContain(CANARY);
}

/** What the error and its causes show, and what is not enumerable of them. */
function shown(error: unknown): readonly string[] {
  return [inspect(error, { depth: 10, showHidden: true }), String(error), JSON.stringify(error)];
}

test("every scheme of a network has a URL here", async () => {
  const { message } = await open("nonsense:").then(
    () => new Error("it was opened"),
    (error: Error) => error,
  );
  const schemes = new Set(message.match(/(?<=\s)[a-z+]+(?=:\/\/)/g));
  expect(schemes.size).toBeGreaterThan(15);
  const ours = new Set(AWAY.map((url) => url.split(":", 1)[0]));
  expect([...schemes].filter((scheme) => !ours.has(scheme))).toEqual([]);
});

describe.each(AWAY)("a store that is away, at %s", (url) => {
  test("no command, error or event shows its secret", async () => {
    for (const args of [["list"], ["inspect", "a", "--json"], ["doctor"], ["lis"]]) {
      const { status, stdout, stderr } = await cliInProcess(...args, "--store", url);
      expect(status).not.toBe(0);
      expectSecrecy([stdout, stderr]);
    }
    const lines: string[] = [];
    const metrics = emf({ dimensions: { service: "shop" }, write: (line) => lines.push(line) });
    const telemetry = combineTelemetry(
      logTelemetry((...line) => lines.push(inspect(line, { depth: 10 }))),
      metricTelemetry(metrics.measure),
    );
    await using store = await open(url, { onEvent: telemetry.lock });
    const locked = () => Promise.reject(new Error("it was locked"));
    const error = await store.locks.lock("a", { ttl: "1s", wait: 0 }).then(locked, (e) => e);
    metrics.flush();
    expect(error).toMatchObject({ code: expect.stringMatching(/^(STORE|LOCK)_/) });
    expectSecrecy([...shown(error), ...lines, inspect(store, { depth: 1 }), store.url]);
  });
});

const COMMANDS = [
  ["lock", "a", "--", "true"],
  ["elect", "a", "--watch"],
  ["inspect", "a"],
  ["list", "--json"],
  ["release", "a", "--fence", "0000000000.00000000000000000001"],
  ["top"],
  ["migrate"],
  ["migrate", "--status"],
  ["raise-generation"],
  ["doctor", "--json"],
  ["inventory", "get", "a"],
  ["inventory", "decrement", "a", "1", "--operation-id", "o-1"],
  ["runs", "list"],
  ["runs", "cancel", "r-1"],
  ["orders", "count"],
  ["oversell"],
  ["oversell", "--locks", `redis://shop:${PASSWORD}@${NOWHERE}`],
  ["inventory", "get", MYSQL, "--quantity", MYSQL],
  ["no-such-command", MYSQL],
  ["list", "--no-such-option", MYSQL],
];

test.each(COMMANDS.map((args) => [args.join(" ").replaceAll(MYSQL, "URL"), args] as const))(
  "`lockstep %s` shows no secret",
  async (_, args) => {
    const [command = "", ...rest] = args;
    const { status, stdout, stderr } = await cliInProcess(command, "--store", MYSQL, ...rest);
    expect(status).not.toBe(0);
    expectSecrecy([stdout, stderr]);
  },
);

test("no answer over HTTP, and no line of its log, shows a secret while the store is away", async () => {
  const texts: string[] = [];
  await using store = await open(MYSQL);
  const { journal, locks, inventory } = store;
  const app = createApp({
    ...{ runtime: createRuntime({ journal, locks }), inventory, locks, secret: FENCES },
    authorize: bearer([{ token: TOKEN, principal: "shop" }]),
    log: (entry) => texts.push(JSON.stringify(entry)),
  });
  const ask = async (path: string, init: RequestInit = {}, token = TOKEN) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const request = new Request(`http://shop${path}`, {
      ...init,
      headers: { ...headers, "idempotency-key": "k-1", ...init.headers },
    });
    const response = await app.fetch(request);
    texts.push(JSON.stringify([...response.headers]), await response.text());
    return response.status;
  };
  const body = JSON.stringify({ quantity: 1, fence: `${FENCES}.sealed` });
  expect(await ask("/ready")).toBe(503);
  expect(await ask("/stock/a")).toBe(503);
  expect(await ask("/runs/r-1")).toBe(503);
  expect(await ask("/stock/a/decrement", { method: "POST", body })).toBeGreaterThanOrEqual(400);
  expect(await ask("/stock/a", {}, `${TOKEN}-wrong`)).toBe(401);
  expect(await ask("/runs/r-1/cancel", { method: "POST", body: `{"${TOKEN}` })).toBeGreaterThan(
    399,
  );
  expectSecrecy(texts);
});

test("no answer of the console shows a secret while the store is away", async () => {
  const errors: unknown[] = [];
  const onError = (error: unknown) => void errors.push(error);
  const { url } = await servingConsole({ onTestFinished }, MYSQL, { token: TOKEN, onError });
  const page = { "lockstep-console": "1" };
  const headers = { ...page, authorization: `Bearer ${TOKEN}` };
  const texts: string[] = [];
  const paths = [
    "info",
    "incidents",
    "locks",
    "lock?name=a",
    "stock",
    "runs",
    "queues",
    "run?id=r",
  ];
  for (const path of paths) {
    const answer = await fetch(`${url}/console/api/${path}`, { headers });
    if (path !== "info") expect(answer.status, path).toBe(503);
    texts.push(JSON.stringify([...answer.headers]), await answer.text());
  }
  const refused = await fetch(`${url}/console/api/locks`, {
    headers: { ...page, authorization: `Bearer ${TOKEN}-wrong` },
  });
  expect(refused.status).toBe(401);
  expectSecrecy([...texts, await refused.text(), ...errors.flatMap(shown)]);
});

describe("on a Redis that wants a password", () => {
  let url = "";
  const env = { LOCKSTEP_SECRET: FENCES, LOCKSTEP_TOKEN: TOKEN };

  beforeAll(async () => {
    await using redis = openLocal();
    const user = `shop-${anyPrefix()}`;
    const password = decodeURIComponent(PASSWORD);
    await redis.call(["ACL", "SETUSER", user, "on", `>${password}`, "~*", "&*", "+@all"]);
    const [port] = redisServer("redis").ports;
    url = `redis://${user}:${PASSWORD}@127.0.0.1:${port}?prefix=${anyPrefix()}`;
  });

  test("no output of commands that succeed, nor the incident's report and trace, shows a secret", async () => {
    const folder = await temporaryFolder("secrets");
    onTestFinished(folder.remove);
    const [report, trace] = [join(folder.path, "a.html"), join(folder.path, "a.json")];
    const sale = ["--strategy", "lockstep", "--stock", "3", "--buyers", "6", "--workers", "2"];
    const faults = ["--freezes", "0", "--kills", "0", "--duplicates", "0"];
    const texts: string[] = [];
    for (const args of [
      ["inventory", "set", "a", "3", "--operation-id", "count"],
      ["lock", "a", "--json", "--", process.execPath, "--version"],
      ["list", "--json"],
      ["doctor", "--json"],
      ["oversell", ...sale, ...faults, "--report", report, "--trace", trace, "--json"],
    ]) {
      const [command = "", ...rest] = args;
      const { finished } = startCli([command, "--store", url, ...rest], { env });
      const { status, stdout, stderr, store = "" } = await finished;
      // The doctor may find faults.
      expect(command === "doctor" ? [0, 1] : [0], stderr).toContain(status);
      texts.push(stdout, stderr, store);
    }
    for (const file of [report, trace]) texts.push(await readFile(file, "utf8"));
    expectSecrecy(texts);
  });

  test("neither the log of a worker nor its metrics show a secret", async () => {
    const folder = await temporaryFolder("secrets");
    onTestFinished(folder.remove);
    const file = join(folder.path, "shop.db");
    await using opened = await openSqlite(file);
    const { journal } = opened;
    await createRuntime({ journal, workflows: [leaky] }).start(leaky, null, { id: "r-1" });
    const args = ["--store", `sqlite:${file}`, "--locks", url, "--port", "0"];
    const leaked = { LEAKED_PASSWORD: PASSWORD };
    const worker = startCli(["worker", LEAKY, ...args], { env: { ...env, ...leaked } });
    let printed = "";
    worker.child.stdout?.on("data", (text) => {
      printed += text;
    });
    await until(async () => (await journal.show("r-1"))?.status === "failed");
    const { metrics, console: page } = JSON.parse(printed.split("\n", 1)[0] ?? "");
    const texts = [await (await fetch(metrics)).text()];
    const headers = { "lockstep-console": "1", authorization: `Bearer ${TOKEN}` };
    for (const path of ["info", "incidents", "locks", "runs", "run?id=r-1"]) {
      const answer = await fetch(`${page}console/api/${path}`, { headers });
      expect(answer.status, path).toBe(200);
      texts.push(await answer.text());
    }
    worker.child.kill("SIGTERM");
    const { stdout, stderr } = await worker.finished;
    expect(stderr).toContain("no answer of mysql://db/shop");
    const shown = await cliInProcess("runs", "show", "r-1", "--json", "--store", `sqlite:${file}`);
    expect(shown.stdout).toContain("leaky");
    expectSecrecy([...texts, stdout, stderr, shown.stdout]);
  });
});
