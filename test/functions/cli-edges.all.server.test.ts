import { once } from "node:events";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, type TestContext, test } from "vitest";
import { cli, startCli, untilPrinted } from "../support/cli.ts";
import { cliInProcess } from "../support/cli-in-process.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryDatabase, temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

/** A SQLite file that does not exist yet, in a folder of its own, which the test's end removes. */
async function place({ onTestFinished }: TestContext) {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  return { store: `sqlite:${file}`, folder: dirname(file) };
}

describe.concurrent("one line names the error and its fix, before any action:", () => {
  test.for<[readonly string[], string]>([
    [["lokc", "a"], '"lokc a" is no command: did you mean lock?'],
    [["inventory", "gte", "a"], '"inventory gte" is no command: did you mean get?'],
    [["runs", "list", "--status", "lost"], 'Given: "lost", Choices: "running", "parked"'],
    [["lock", "a", "true"], 'Unknown argument: true; a command follows a "--"'],
    [["lock", "a", "--wait", "5sec"], "--wait must be a duration such as 10s or 500ms"],
    [["lock", "a", "--wait", "5"], "--wait 5 has no unit: write 5s for seconds, 5ms for"],
    [["lock", "a", "--ttl=10", "--", "true"], "--ttl 10 has no unit: write 10s for seconds"],
    [["lock", "a", "--max-hold", "1.5"], "--max-hold 1.5 has no unit: write 1.5s"],
  ])("%j", async ([args, line], context) => {
    const { store, folder } = await place(context);
    const { status, stdout, stderr } = await cliInProcess(...args, "--store", store);
    expect({ status, stdout }).toEqual({ status: 64, stdout: "" });
    expect(stderr).toContain(line);
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
    expect(await readdir(folder)).toEqual([]);
  });

  test.for(["lock", "elect"])("%s without a command after two dashes", async (command, context) => {
    const { store, folder } = await place(context);
    const { status, stderr } = await cliInProcess(command, "a", "--store", store, "--");
    const line = 'lockstep: no command follows the "--"\n';
    expect({ status, stderr }).toEqual({ status: 64, stderr: line });
    expect(await readdir(folder)).toEqual([]);
  });

  test("an old Node", async (context) => {
    const { store } = await place(context);
    const versions = { ...process.versions, node: "20.19.4" };
    const script = `Object.defineProperty(process, "versions", { value: ${JSON.stringify(versions)} })`;
    const preload = `data:text/javascript,${encodeURIComponent(script)}`;
    const env = { NODE_OPTIONS: `--import=${preload}` };
    const { status, stdout, stderr } = await startCli(["list", "--store", store], { env }).finished;
    expect({ status, stdout }).toEqual({ status: 69, stdout: "" });
    expect(stderr).toMatch(
      /^lockstep: needs Node 22\.18 or later; \S+ is 20\.19\.4\. Install .*\n$/,
    );
  });
});

test.concurrent("lock names the holder of a busy lock, with --json as JSON", async (context) => {
  const { store } = await place(context);
  const holder = startCli(["lock", "job", "--store", store]);
  context.onTestFinished(() => void holder.child.kill("SIGKILL"));
  await untilPrinted(holder);
  const { pid } = holder.child;
  // The wait includes the start of the store, which takes long on a busy machine.
  for (const wait of ["0", "2s"]) {
    const late = await cli("lock", "job", "--wait", wait, "--store", store, "--", "true");
    expect(late).toMatchObject({ status: 75, stdout: "" });
    expect(late.stderr).toMatch(
      new RegExp(
        `^lockstep: lock "job" .* held by \\S+:${pid}/\\S+, for \\d+ ms more unless it renews\n$`,
      ),
    );
  }
  const args = ["lock", "job", "--wait", "0", "--json", "--store", store];
  const { status, stdout } = await cli(...args);
  expect(status).toBe(75);
  expect(JSON.parse(stdout)).toEqual({
    name: "job",
    outcome: "busy",
    holder: expect.stringContaining(`:${pid}/`),
    expiresIn: expect.any(Number),
  });
  holder.child.kill("SIGINT");
  await holder.finished;
});

test.concurrent("the ledger and the servers are printed as JSON", async (context) => {
  const { store, folder } = await place(context);
  await cliInProcess(
    "inventory",
    "set",
    "teapot",
    "3",
    "--operation-id",
    "first",
    "--store",
    store,
  );
  const history = await cliInProcess("inventory", "history", "teapot", "--json", "--store", store);
  expect(JSON.parse(history.stdout)).toMatchObject([{ operationId: "first", remaining: 3 }]);
  const servers = await startCli(["servers", "status", "--json"], { cwd: folder }).finished;
  expect(JSON.parse(servers.stdout)).toEqual([]);
});

test.concurrent("a server whose containers are gone does not run", async (context) => {
  const { folder } = await place(context);
  const state = join(folder, "lockstep", "servers");
  await mkdir(state, { recursive: true });
  const server = { name: "mysql", version: "9", url: "mysql://root@127.0.0.1:1", nodes: [] };
  const registered = { ...server, project: "lockstep-mysql-gone", running: true };
  await writeFile(join(state, "mysql.json"), JSON.stringify(registered));
  const env = { XDG_STATE_HOME: folder };
  const { stdout } = await startCli(["servers", "status", "--json"], { cwd: folder, env }).finished;
  expect(JSON.parse(stdout)).toMatchObject([{ name: "mysql", running: false }]);
});

describe.concurrent("a closed reader", () => {
  /** Runs the command line with one of its streams closed at the other end. Resolves to its exit status. */
  async function without(
    stream: "stdout" | "stderr",
    context: TestContext,
    command: string,
    ...args: readonly string[]
  ) {
    const { store } = await place(context);
    const { child, finished } = startCli([command, "--store", store, ...args]);
    finished.catch(() => {});
    child[stream]?.destroy();
    return (await once(child, "exit"))[0];
  }

  test("of standard output changes nothing", async (context) => {
    expect(await without("stdout", context, "list")).toBe(0);
  });

  test("of standard error does not keep a command from running under its lock", async (context) => {
    expect(await without("stderr", context, "lock", "job", "--", "sh", "-c", "exit 3")).toBe(3);
  });
});

describe.concurrent("a server that accepts connections and never answers", () => {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => void sockets.add(socket.on("error", () => {})));

  beforeAll(async () => void (await once(server.listen(0, "127.0.0.1"), "listening")));

  afterAll(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });

  test.each([
    ["list", "mysql://root@HOST/shop"],
    ["runs", "mysql://root@HOST/shop"],
    ["list", "etcd://HOST"],
    ["list", "zookeeper://HOST"],
  ])("%s of %s gives it 2 s, and says so in one line", async (command, url) => {
    const { port } = server.address() as AddressInfo;
    const at = url.replace("HOST", `127.0.0.1:${port}`);
    const words = command === "runs" ? ["runs", "list"] : [command];
    const { status, stdout, stderr } = await cli(...words, "--store", at);
    expect({ status, stdout }).toEqual({ status: 69, stdout: "" });
    const shown = at.replace("root@", "");
    expect(stderr).toBe(`lockstep: ${shown} is unavailable: it did not answer within 2 s\n`);
  });
});

test.concurrent("lock ends soon after its command if the server hangs and the lock is lost", async (context) => {
  const [server] = inject("sqlServers");
  if (!server) throw new Error("there is no server");
  const { url, drop } = await temporaryDatabase(server);
  await cli("migrate", "--store", url);
  const { port } = new URL(url);
  const proxy = await TcpProxy.to(Number(port));
  const behind = url.replace(`:${port}/`, `:${proxy.port}/`);
  const lock = ["lock", "job", "--ttl", "6s", "--store", behind, "--"];
  const run = startCli([...lock, "sh", "-c", "echo held; exec sleep 600"]);
  const { child, finished } = run;
  context.onTestFinished(() => void child.kill("SIGKILL"));
  let said = "";
  child.stderr?.on("data", (data) => {
    said += data;
  });
  await untilPrinted(run);
  proxy.cut();
  await until(() => said.includes("can no longer be proven held"));
  const lostAt = performance.now();
  expect((await finished).status).toBe(76);
  // Within 2 s, on a machine that is busy; a server that hangs would hold it for minutes.
  expect(performance.now() - lostAt).toBeLessThan(60_000);
  await proxy.close();
  await drop();
});

test.concurrent.for<[string, (port: number) => string]>([
  ["mysql", (port: number) => `mysql://root@127.0.0.1:${port}/shop`],
  ["redis", (port: number) => `redis://127.0.0.1:${port}`],
  ["redlock", (port: number) => `redlock://127.0.0.1:${port},localhost:${port},[::1]:${port}`],
  ["etcd", (port: number) => `etcd://127.0.0.1:${port}`],
  ["etcd's gateway", (port: number) => `etcd+http://127.0.0.1:${port}`],
  ["zookeeper", (port: number) => `zookeeper://127.0.0.1:${port}`],
])(
  "lock ends soon after its wait when the server never answers, on %s",
  async ([, url], context) => {
    const silent = createServer(() => {});
    context.onTestFinished(() => void silent.close());
    await once(silent.listen(0, "127.0.0.1"), "listening");
    const { port } = silent.address() as AddressInfo;
    const lock = [
      "lock",
      "job",
      "--wait",
      "2s",
      "--ttl",
      "10s",
      "--store",
      url(port),
      "--",
      "true",
    ];
    const { child, finished } = startCli(lock);
    context.onTestFinished(() => void child.kill("SIGKILL"));
    // Its store is the first that it says.
    if (child.stderr) await once(child.stderr, "data");
    const startedAt = performance.now();
    expect((await finished).status).toBe(69);
    // 2 s of waiting, half a second to give up and another one to end, on a machine that is busy.
    expect(performance.now() - startedAt).toBeLessThan(60_000);
  },
);
