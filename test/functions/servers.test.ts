import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { expect, inject, onTestFinished, test } from "vitest";
import { openRedis } from "../../core/redis/ioredis.ts";
import { KINDS } from "../../infra/servers/kinds.ts";
import { run, type ServerNode } from "../../infra/servers/node.ts";
import { accepts, isHealthy, pongs } from "../../infra/servers/probes.ts";
import { freePort, isOurs } from "../../infra/servers/processes.ts";
import { reap } from "../../infra/servers/reap.ts";
import { startServer } from "../../infra/servers/start.ts";
import { startCli } from "../support/cli.ts";
import { QUICK_ETCD } from "../support/etcd-servers.ts";
import { runScript } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

test("lockstep servers starts a server that stays, finds it again, and stops it", async () => {
  const servers = await serversCommand();
  const up = await servers("up", "mysql");
  expect(up).toMatchObject({ status: 0, stderr: "" });
  const url = up.stdout.trim();
  expect((await servers("up", "mysql")).stdout.trim()).toBe(url);
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

test.each([
  ["etcd", 1],
  ["etcd-cluster", 3],
] as const)(
  "lockstep servers starts %s, lists its processes, and stops them",
  async (name, size) => {
    const servers = await serversCommand();
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
    expect(await Promise.all(ports.map(accepts))).not.toContain(true);
  },
);

test("lockstep servers starts Redis servers, a primary with its replica among them, and stops them", async () => {
  const servers = await serversCommand();
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
});

test("a replica serves once it has what its primary has", async () => {
  await using server = await startServer("redis-replica");
  const [primary, replica] = server.nodes as [ServerNode, ServerNode];
  const ask = async (node: ServerNode, ...command: [string, ...string[]]) => {
    await using redis = openRedis({ host: "127.0.0.1", port: node.place.port });
    return await redis.call(command);
  };
  await ask(primary, "SET", "a", "1");
  await replica.kill("SIGKILL");
  expect(await pongs(replica.place.port)).toBe(false);
  await replica.start();
  expect(await ask(replica, "GET", "a")).toBe("1");
});

test.each([
  ["mysql", 1],
  ["etcd-cluster", 3],
  ["redlock", 5],
] as const)(
  "%s ends with its owner, however that is killed, and leaves no folder behind",
  async (name, size) => {
    using owner = runScript("own-server", name);
    const nodes: { readonly pid: number; readonly folder: string }[] = JSON.parse(
      await owner.line(),
    );
    expect(nodes).toHaveLength(size);
    expect(nodes.every(({ pid, folder }) => isOurs(pid, folder))).toBe(true);
    owner.child.kill("SIGKILL");
    await until(() => !nodes.some(({ pid, folder }) => isOurs(pid, folder)));
    await until(() => !nodes.some(({ folder }) => existsSync(folder)));
  },
);

test("a server that is killed comes back on the same port with the same data", async () => {
  await using server = await startServer("mysql");
  const [node] = server.nodes;
  const first = node?.pid;
  await node?.kill("SIGKILL");
  await node?.start();
  expect(node?.pid).not.toBe(first);
  const { status } = await startCli(["migrate", "--store", server.url]).finished;
  expect(status).toBe(0);
});

test("each of three nodes can be killed: the others serve, and it comes back with what they wrote", async () => {
  await using server = await startServer("etcd-cluster", { args: QUICK_ETCD["etcd-cluster"] });
  for (const node of server.nodes) {
    const others = server.nodes.filter((each) => each !== node);
    await node.kill("SIGKILL");
    const value = `written without ${node.place.port}`;
    const put = ["put", "key", value, "--command-timeout=1s"];
    await until(() => etcdctl(urlOf(others), ...put).catch(() => false));
    await node.start();
    expect(await etcdctl(urlOf([node]), "get", "key", "--print-value-only")).toBe(`${value}\n`);
  }
});

test("one node of three accepts connections, but does not serve before a second one is back", async () => {
  await using server = await startServer("etcd-cluster", { args: QUICK_ETCD["etcd-cluster"] });
  const [left, second, third] = server.nodes as [ServerNode, ServerNode, ServerNode];
  await Promise.all([second.kill("SIGKILL"), third.kill("SIGKILL")]);
  expect(await accepts(left.place.port)).toBe(true);
  expect(await isHealthy(left.place.port)).toBe(false);
  await second.start();
  expect(await isHealthy(left.place.port)).toBe(true);
});

test("a cluster whose nodes are all killed comes back with what it acknowledged", async () => {
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

test.each(["mysql", "etcd", "redis"] as const)("%s that cannot start says why", async (name) => {
  await expect(startServer(name, { args: ["--no-such-option"] })).rejects.toThrow("no-such-option");
});

/** The command in a folder of its own, with all that it starts: that ends even if the test fails or is killed. */
async function serversCommand() {
  const { file, remove } = await temporaryFile();
  const cwd = dirname(file);
  reap(cwd);
  const servers = (...args: readonly string[]) =>
    startCli(["servers", ...args], { cwd, env: { TMPDIR: cwd } }).finished;
  onTestFinished(async () => {
    await servers("down");
    await remove();
  });
  return servers;
}

function urlOf(nodes: readonly ServerNode[]): string {
  return KINDS.etcd.url(nodes.map(({ place }) => place.port));
}

function etcdctl(url: string, ...args: readonly string[]): Promise<string> {
  const [{ etcdctl: file = "" } = {}] = inject("etcdServers");
  const endpoints = url.slice("etcd://".length);
  return run(file, [`--endpoints=${endpoints}`, ...args]);
}

test("nobody else is given the port of a server that is down: they come in blocks, one for each process", async () => {
  const ports = await Promise.all(Array.from({ length: 120 }, freePort));
  expect(new Set(ports).size).toBe(120);
  const blocks = [...new Set(ports.map((port) => port - (port % 50)))];
  expect(blocks.length).toBeGreaterThan(2);
  expect(blocks.filter((first) => ports.includes(first))).toEqual([]);
  // Whoever wants a block has to listen there.
  expect(await Promise.all(blocks.map(accepts))).not.toContain(false);
});
