import { existsSync } from "node:fs";
import { chmod, mkdtemp, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, inject, type TestContext, test } from "vitest";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import { findOrThrow } from "../../infra/servers/binaries.ts";
import { KINDS, type ServerName } from "../../infra/servers/kinds.ts";
import { acceptsConnections, answersPing, isEtcdHealthy } from "../../infra/servers/probes.ts";
import { freePort, isRunningOn, run } from "../../infra/servers/processes.ts";
import { reap } from "../../infra/servers/reap.ts";
import type { ServerNode } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { startCli } from "../support/cli.ts";
import { QUICK_ETCD } from "../support/etcd-servers.ts";
import { cells, EVERY_VERSION, WHOLE_MATRIX } from "../support/matrix.ts";
import { needServers } from "../support/missing.ts";
import { runScript } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

test.concurrent("lockstep servers starts a server that outlives the command, finds it again, and stops it", async (context) => {
  const servers = await serversCommand(context, "mariadb");
  const up = await servers("up", "mariadb");
  expect(up).toMatchObject({ status: 0, stderr: "" });
  const url = up.stdout.trim();
  expect((await servers("up", "mariadb")).stdout.trim()).toBe(url);
  const status = await servers("status");
  expect(status.stdout).toContain(url);
  expect(status.stdout).toContain("running");
  const migrated = await startCli(["migrate", "--store", url]).finished;
  expect(migrated.stdout).toContain("applied");
  expect(await servers("down")).toMatchObject({ status: 0 });
  expect((await servers("status")).stdout).toBe("none\n");
  const after = await startCli(["list", "--store", url]).finished;
  expect(after.status).toBe(69);
});

test.concurrent("lockstep servers never starts MySQL for MariaDB or the other way round", async (context) => {
  const servers = await serversCommand(context, "mariadb");
  await servers("up", "mariadb");
  expect((await servers("status")).stdout).toContain("MariaDB");
  await servers("down");
  const up = await servers("up", "mysql");
  if (up.status === 0) {
    expect((await servers("status")).stdout).not.toContain("MariaDB");
    await servers("down");
  } else {
    expect(up).toMatchObject({ status: 69, stdout: "" });
    expect(up.stderr).toBe(
      "lockstep: mysql is not installed: put mysqld on the PATH or start Docker; MariaDB is called mariadb\n",
    );
  }
});

test.concurrent.for(
  cells([
    ["etcd", 1],
    ["etcd-cluster", 3],
  ] as const),
)(
  "lockstep servers starts %s, lists its processes, and stops them",
  async ([name, size], context) => {
    const servers = await serversCommand(context, name);
    const up = await servers("up", name);
    expect(up).toMatchObject({ status: 0, stderr: "" });
    const url = up.stdout.trim();
    expect(url).toMatch(/^etcd:\/\/127\.0\.0\.1:\d+(,127\.0\.0\.1:\d+)*$/);
    expect(url.split(",")).toHaveLength(size);
    await etcdctl(url, "put", "key", "value");
    expect((await servers("up", name)).stdout.trim()).toBe(url);
    const status = await servers("status");
    expect(status.stdout).toContain(url);
    expect(status.stdout).toMatch(/running .* \d+\.\d+\.\d+ /);
    expect(await servers("down", name)).toMatchObject({ status: 0 });
    expect((await servers("status")).stdout).toBe("none\n");
    const ports = url.split(",").map((host) => Number(host.split(":").at(-1)));
    expect(await Promise.all(ports.map(acceptsConnections))).not.toContain(true);
  },
);

test
  .runIf(WHOLE_MATRIX)
  .concurrent(
    "lockstep servers starts Redis servers, a primary with its replica among them, and stops them",
    async (context) => {
      const servers = await serversCommand(context, "redis");
      for (const [name, size] of [
        ["redis", 1],
        ["redis-replica", 1],
        ["redlock", 5],
      ] as const) {
        const up = await servers("up", name);
        expect(up).toMatchObject({ status: 0, stderr: "" });
        const url = up.stdout.trim();
        expect(url).toMatch(/^(redis|redlock):\/\/127\.0\.0\.1:\d+(,127\.0\.0\.1:\d+)*$/);
        expect(url.split(",")).toHaveLength(size);
        expect((await servers("up", name)).stdout.trim()).toBe(url);
      }
      const { stdout } = await servers("status");
      expect(stdout.match(/running .*Redis server v=\d+/g)).toHaveLength(3);
      expect(await servers("down")).toMatchObject({ status: 0 });
      expect((await servers("status")).stdout).toBe("none\n");
    },
  );

test.concurrent.for(
  (
    [
      ["dynamodb", 1],
      ["postgres", 1],
      ["redis-cluster", 6],
      ["redis-sentinel", 5],
    ] as const
  ).slice(0, EVERY_VERSION ? undefined : 1),
)(
  "lockstep servers starts %s, whose store can be used, and stops it",
  async ([name, size], context) => {
    const servers = await serversCommand(context, name);
    const up = await servers("up", name);
    expect(up).toMatchObject({ status: 0, stderr: "" });
    const store = ["--store", up.stdout.trim()];
    if (!name.startsWith("redis")) await startCli(["migrate", ...store]).finished;
    const locked = await startCli(["lock", "job", ...store, "--", "echo", "locked"]).finished;
    expect(locked).toMatchObject({ status: 0, stdout: "locked\n" });
    const { stdout } = await servers("status");
    expect(stdout).toMatch(new RegExp(`${name} .* running .*(?: \\d+){${size}}`));
    expect(await servers("down", name)).toMatchObject({ status: 0 });
    expect((await servers("status")).stdout).toBe("none\n");
  },
);

test
  .runIf(WHOLE_MATRIX)
  .concurrent(
    "lockstep servers starts PgBouncer with a PostgreSQL server behind it, and stops both",
    async (context) => {
      const servers = await serversCommand(context, "pgbouncer");
      const up = await servers("up", "pgbouncer");
      expect(up).toMatchObject({ status: 0, stderr: "" });
      const url = up.stdout.trim();
      const migrated = await startCli(["migrate", "--store", url]).finished;
      expect(migrated.stdout).toContain("applied");
      expect((await servers("status")).stdout).toMatch(/pgbouncer .* running .* \d+ \d+ /);
      expect(await servers("down")).toMatchObject({ status: 0 });
      await until(async () => !(await acceptsConnections(Number(new URL(url).port))));
    },
  );

test("a replica is ready once it is in sync with its primary", async () => {
  await using server = await startServer("redis-replica");
  const [primary, replica] = server.nodes as [ServerNode, ServerNode];
  const ask = async (node: ServerNode, ...command: [string, ...string[]]) => {
    await using redis = redisClient({ host: "127.0.0.1", port: node.config.port });
    return await redis.call(command);
  };
  await ask(primary, "SET", "a", "1");
  await replica.kill("SIGKILL");
  expect(await answersPing(replica.config.port)).toBe(false);
  await replica.start();
  expect(await ask(replica, "GET", "a")).toBe("1");
});

test.each([
  ["mariadb", 1],
  ["etcd-cluster", 3],
  ["redlock", 5],
] as const)(
  "%s ends with its parent after any kill, and leaves no folder behind",
  async (name, size) => {
    await needServers(name);
    using owner = runScript("own-server", name);
    const nodes: { readonly pid: number; readonly folder: string }[] = JSON.parse(
      await owner.line(),
    );
    expect(nodes).toHaveLength(size);
    expect(nodes.every(({ pid, folder }) => isRunningOn(pid, folder))).toBe(true);
    owner.child.kill("SIGKILL");
    await until(() => !nodes.some(({ pid, folder }) => isRunningOn(pid, folder)));
    await until(() => !nodes.some(({ folder }) => existsSync(folder)));
  },
);

test("a killed server restarts on the same port with the same data", async () => {
  await using server = await startServer("mariadb");
  const [node] = server.nodes;
  const first = node?.pid;
  await node?.kill("SIGKILL");
  await node?.start();
  expect(node?.pid).not.toBe(first);
  const { status } = await startCli(["migrate", "--store", server.url]).finished;
  expect(status).toBe(0);
});

test("a killed PostgreSQL starts again while a child of its first process still runs", async () => {
  await using server = await startServer("postgres", { onProgress: () => {} });
  const [node] = server.nodes;
  const children = await run("pgrep", ["-P", String(node?.pid)]);
  const child = Number(children.split("\n")[0]);
  process.kill(child, "SIGSTOP");
  await node?.kill("SIGKILL");
  setTimeout(() => process.kill(child, "SIGCONT"), 1_000);
  await node?.start();
});

test("PostgreSQL keeps its shared memory in its folder, so that a killed server leaves none behind", async () => {
  await using server = await startServer("postgres", { onProgress: () => {} });
  const maps = await readFile(`/proc/${server.nodes[0]?.pid}/maps`, "utf8");
  expect(maps).toContain("pg_dynshmem");
  expect(maps).not.toContain("/dev/shm/PostgreSQL");
});

test("each of three nodes can be killed: the others answer, and it restarts with their writes", async () => {
  await using server = await startServer("etcd-cluster", { args: QUICK_ETCD["etcd-cluster"] });
  for (const node of server.nodes) {
    const others = server.nodes.filter((each) => each !== node);
    await node.kill("SIGKILL");
    const value = `written without ${node.config.port}`;
    const put = ["put", "key", value, "--command-timeout=1s"];
    await until(() => etcdctl(urlOf(others), ...put).catch(() => false));
    await node.start();
    expect(await etcdctl(urlOf([node]), "get", "key", "--print-value-only")).toBe(`${value}\n`);
  }
});

test("one node of three accepts connections, but is not ready before a second one is", async () => {
  await using server = await startServer("etcd-cluster", { args: QUICK_ETCD["etcd-cluster"] });
  const [left, second, third] = server.nodes as [ServerNode, ServerNode, ServerNode];
  await Promise.all([second.kill("SIGKILL"), third.kill("SIGKILL")]);
  expect(await acceptsConnections(left.config.port)).toBe(true);
  expect(await isEtcdHealthy(left.config.port)).toBe(false);
  await second.start();
  // A probe that takes longer than a second fails.
  await until(() => isEtcdHealthy(left.config.port));
});

test("a cluster restarts with all acknowledged writes after a kill of all nodes", async () => {
  await using server = await startServer("etcd-cluster", { args: QUICK_ETCD["etcd-cluster"] });
  await etcdctl(server.url, "put", "key", "value");
  await Promise.all(server.nodes.map((node) => node.kill("SIGKILL")));
  await Promise.all(server.nodes.map((node) => node.start()));
  expect(await etcdctl(server.url, "get", "key", "--print-value-only")).toBe("value\n");
});

test.each(inject("etcdServers"))(
  "$name grants a ttl of a second, and its etcdctl has its version",
  async (server) => {
    expect(await run(server.etcdctl, ["version"])).toContain(server.version.split(" ").at(-1));
    for (const endpoint of server.endpoints) {
      const granted = await run(server.etcdctl, [`--endpoints=${endpoint}`, "lease", "grant", "1"]);
      expect(granted).toContain("granted with TTL(1s)");
    }
  },
);

test.each(["mariadb", "etcd", "redis"] as const)(
  "the error of a failed start of %s shows the reason",
  async (name) => {
    const binary = await findOrThrow(KINDS[name], () => {});
    const started = startServer(name, { binary, args: ["--no-such-option"] });
    await expect(started).rejects.toThrow("no-such-option");
  },
);

/** The command in a folder of its own, with all that it starts: that ends even if the test fails or is killed. */
async function serversCommand({ onTestFinished }: TestContext, needed: ServerName) {
  await needServers(needed);
  const { file, remove } = await temporaryFile();
  const cwd = dirname(file);
  reap(cwd);
  // PostgreSQL runs as another user.
  await chmod(cwd, 0o711);
  const env = { TMPDIR: cwd, XDG_STATE_HOME: cwd };
  // The user's servers are the same ones in every folder.
  const servers = async (...args: readonly string[]) => {
    const elsewhere = await mkdtemp(join(cwd, "elsewhere-"));
    return startCli(["servers", ...args], { cwd: elsewhere, env }).finished;
  };
  onTestFinished(async () => {
    await servers("down");
    await remove();
  });
  return servers;
}

function urlOf(nodes: readonly ServerNode[]): string {
  return KINDS.etcd.url(nodes.map(({ config }) => config.port));
}

function etcdctl(url: string, ...args: readonly string[]): Promise<string> {
  const [{ etcdctl: file = "" } = {}] = inject("etcdServers");
  const endpoints = url.slice("etcd://".length);
  return run(file, [`--endpoints=${endpoints}`, ...args]);
}

test("ports come in blocks, one per process, so that no process takes the port of a stopped server", async () => {
  const ports = await Promise.all(Array.from({ length: 120 }, freePort));
  expect(new Set(ports).size).toBe(120);
  const blocks = [...new Set(ports.map((port) => port - (port % 50)))];
  expect(blocks.length).toBeGreaterThan(2);
  expect(blocks.filter((first) => ports.includes(first))).toEqual([]);
  // A process reserves a block by listening on its first port.
  expect(await Promise.all(blocks.map(acceptsConnections))).not.toContain(false);
});
