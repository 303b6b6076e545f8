import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { expect, test } from "vitest";
import { isOurs } from "../../infra/servers/processes.ts";
import { startServer } from "../../infra/servers/start.ts";
import { startCli } from "../support/cli.ts";
import { runScript } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

test("lockstep servers starts a server that stays, finds it again, and stops it", async () => {
  const { file, remove } = await temporaryFile();
  const cwd = dirname(file);
  const servers = (...args: readonly string[]) => startCli(["servers", ...args], { cwd }).finished;
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
  await remove();
});

test("a server ends with its owner, however that is killed, and leaves no folder behind", async () => {
  using owner = runScript("own-server");
  const [pid = "", folder = ""] = (await owner.line()).split(" ");
  expect(isOurs(Number(pid), folder)).toBe(true);
  owner.child.kill("SIGKILL");
  await until(() => !isOurs(Number(pid), folder));
  await until(() => !existsSync(folder));
});

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

test("a server that cannot start says why", async () => {
  await expect(startServer("mysql", { args: ["--no-such-option"] })).rejects.toThrow(
    "no-such-option",
  );
});
