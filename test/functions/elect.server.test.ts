import { existsSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { ServerName } from "../../infra/servers/kinds.ts";
import { startServer } from "../../infra/servers/start.ts";
import { cli } from "../support/cli.ts";
import { cliInProcess } from "../support/cli-in-process.ts";
import { anyTable } from "../support/dynamodb-under-test.ts";
import { freshPrefix } from "../support/etcd.ts";
import { cells, EVERY_VERSION } from "../support/matrix.ts";
import { anyPrefix, redisServer } from "../support/redis-under-test.ts";
import { runCli } from "../support/script.ts";
import { temporaryDatabase, temporaryFile } from "../support/under-test.ts";
import { until, within } from "../support/until.ts";

interface Opened {
  readonly url: string;
  readonly remove?: () => Promise<void>;
}

const STORES: Readonly<Record<string, () => Promise<Opened>>> = {
  async sqlite() {
    const { file, remove } = await temporaryFile();
    return { url: `sqlite:${file}`, remove };
  },
  redis: async () => ({ url: `${redisServer("redis").url}?prefix=${anyPrefix()}` }),
  dynamodb: anyTable,
  ...(EVERY_VERSION && {
    redlock: async () => ({ url: `${redisServer("redlock").url}?prefix=${anyPrefix()}` }),
    "redis-cluster": () => ownServer("redis-cluster"),
    "redis-sentinel": () => ownServer("redis-sentinel"),
  }),
  ...Object.fromEntries(
    [...inject("sqlServers"), ...inject("postgresServers")].map((server) => [
      server.name,
      async () => {
        const { url, drop } = await temporaryDatabase(server);
        await cliInProcess("migrate", "--store", url);
        return { url, remove: drop };
      },
    ]),
  ),
  ...Object.fromEntries(
    [...inject("etcdServers"), ...inject("zookeeperServers")].map((server) => [
      server.name,
      async () => ({ url: `${server.url}/${freshPrefix()}` }),
    ]),
  ),
};

async function ownServer(name: ServerName): Promise<Opened> {
  const { url, stop } = await startServer(name);
  return { url, remove: stop };
}

/** Longer than the waits of these tests. */
const LONG = "30s";

describe.each(cells(Object.keys(STORES), 2))("lockstep elect on %s", (name) => {
  let opened: Opened;

  beforeAll(async () => {
    opened = (await STORES[name]?.()) as Opened;
  });

  afterAll(() => opened.remove?.());

  const elect = (election: string, ...args: readonly string[]) =>
    runCli("elect", election, "--store", opened.url, ...args);

  /** Starts a candidate whose command prints its fence once it leads. */
  const candidate = (election: string, value: string, ttl = LONG) => {
    const command = ["sh", "-c", "echo $LOCKSTEP_FENCE; exec sleep 600"];
    return elect(election, "--value", value, "--ttl", ttl, "--", ...command);
  };

  test("the next candidate leads after the leader was killed, with a higher fence; a watcher sees each", async () => {
    using watcher = elect("killed", "--watch");
    expect(await watcher.line()).toBe("nobody leads");
    using first = candidate("killed", "first", "5s");
    const fence = await first.line();
    expect(await watcher.line()).toMatch(new RegExp(`^first leads.*, fence ${fence}$`));
    using second = candidate("killed", "second", "5s");
    first.child.kill("SIGKILL");
    const next = await within(60_000, second.line());
    expect(next > fence).toBe(true);
    let seen = "";
    await until(async () => {
      seen = await watcher.line();
      return seen.startsWith("second leads");
    });
    expect(seen).toContain(`fence ${next}`);
    watcher.child.kill("SIGTERM");
    expect(await watcher.ended).toBe(0);
  });

  test("a watcher whose reader has gone ends with the next leader", async () => {
    using watcher = elect("unread", "--watch");
    expect(await watcher.line()).toBe("nobody leads");
    watcher.child.stdout?.destroy();
    using leader = candidate("unread", "first");
    await leader.line();
    expect(await within(60_000, watcher.ended)).toBe(0);
  });

  test("a leader that is terminated resigns at once, with the status of its command", async () => {
    using first = candidate("ended", "first");
    const fence = await first.line();
    using second = candidate("ended", "second");
    first.child.kill("SIGTERM");
    expect(await first.ended).toBe(128 + 15);
    // Sooner than its ttl.
    expect((await within(20_000, second.line())) > fence).toBe(true);
  });

  test("a leader that is deposed ends its command, and exits with 76", async () => {
    using leader = candidate("deposed", "first", "5s");
    const fence = await leader.line();
    const released = await cli("release", "deposed", "--fence", fence, "--store", opened.url);
    expect(released.status).toBe(0);
    expect(await leader.ended).toBe(76);
  });
});

test("wrong usage of elect is refused before the store is asked", async () => {
  const nowhere = ["--store", "redis://127.0.0.1:1"];
  for (const [args, problem] of [
    [["a", "--watch", "--", "true"], "--watch takes no command"],
    [["a", "--json"], "--json needs --watch"],
    [["a", "--ttl", "5"], "has no unit"],
    [["a", "--value", "x".repeat(81), "--", "true"], "81 bytes, the limit is 80"],
    [["", "--", "true"], "lock name must not be empty"],
  ] as const) {
    const words = [...args];
    const { status, stderr } = await cliInProcess("elect", ...nowhere, ...words);
    expect(stderr).toContain(problem);
    expect(status).toBe(64);
  }
});

test("a watcher of a store that cannot be reached fails", async () => {
  const nowhere = ["--store", "redis://127.0.0.1:1"];
  const { status } = await cli("elect", "anything", "--watch", ...nowhere);
  expect(status).toBe(69);
});

test("a watcher makes no SQLite file, and sees the leader who makes it", async () => {
  const { file, remove } = await temporaryFile();
  const store = ["--store", `sqlite:${file}`];
  using watcher = runCli("elect", "first", ...store, "--watch");
  expect(await watcher.line()).toBe("nobody leads");
  expect(existsSync(file)).toBe(false);
  using leader = runCli("elect", "first", ...store, "--value", "me");
  expect(await watcher.line()).toMatch(/^me leads/);
  leader.child.kill("SIGTERM");
  expect(await watcher.line()).toBe("nobody leads");
  watcher.child.kill("SIGTERM");
  expect(await watcher.ended).toBe(0);
  await leader.ended;
  await remove();
});

test("a leader without a command prints one JSON line, and a watcher prints JSON", async () => {
  const { file, remove } = await temporaryFile();
  const store = ["--store", `sqlite:${file}`];
  using leader = runCli("elect", "held", ...store, "--value", "\u001b[31mred\u009b");
  const { fence, ...held } = JSON.parse(await leader.line());
  expect(held).toEqual({ name: "held", ttlMillis: 10_000 });
  using watcher = runCli("elect", "held", ...store, "--watch", "--json");
  expect(JSON.parse(await watcher.line())).toMatchObject({
    leader: { value: "\u001b[31mred\u009b", fence, since: expect.any(String) },
  });
  using reader = runCli("elect", "held", ...store, "--watch");
  expect(await reader.line()).toContain("\\u001b[31mred\\u009b leads");
  leader.child.kill("SIGINT");
  expect(await leader.ended).toBe(0);
  expect(JSON.parse(await watcher.line())).toEqual({ leader: null });
  await remove();
});
