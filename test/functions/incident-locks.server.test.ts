import { describe, expect, inject, test } from "vitest";
import type { OversellReport } from "../../functions/oversell/oversell.ts";
import { cli } from "../support/cli.ts";
import { cliInProcess } from "../support/cli-in-process.ts";
import { anyPrefix, redisServer } from "../support/redis-under-test.ts";
import { temporaryDatabase, temporaryFile } from "../support/under-test.ts";
import { freshRoot, singleZooKeeper } from "../support/zookeeper.ts";

/** The stores of the locks, each with the SQL server that keeps the stock. */
const pairs = [
  ["redis", "sqlServers", () => `${redisServer("redis").url}?prefix=${anyPrefix()}`],
  ["etcd", "postgresServers", () => `${inject("etcdServers")[0]?.url}/${anyPrefix()}`],
  ["redlock", "sqlServers", () => `${redisServer("redlock").url}?prefix=${anyPrefix()}`],
  [
    "zookeeper",
    "postgresServers",
    () => `zookeeper://${singleZooKeeper().servers.join(",")}${freshRoot()}`,
  ],
] as const;

/** Six units, and one process that is frozen for longer than its lock lives. */
const SIZE = ["--stock", "6", "--buyers", "9", "--workers", "3", "--json"];
// With shorter locks, a busy machine needs many attempts for a quorum of Redlock's masters.
const TTL = ["--ttl", "2s"];
const FAULTS = ["--slow", "0", "--freezes", "1", "--kills", "0", "--duplicates", "0"];

describe.concurrent("locks in one store, and stock in another", () => {
  test.each(pairs)(
    "a holder whose lock in %s has expired is refused by the stock in the first of the %s",
    {
      timeout: 240_000,
    },
    async (kind, database, toUrl) => {
      const [server] = inject(database);
      if (!server) throw new Error(`no server is among the ${database}`);
      const { url, drop } = await temporaryDatabase(server);
      const locks = toUrl();
      const byHand = kind === "redis" ? ["as-in-the-incident"] : [];
      const names = [...byHand, "renewed", "lockstep"].flatMap((name) => ["--strategy", name]);
      const { stdout, stderr, status } = await cli(
        ...["oversell", "--store", url, "--locks", locks, ...names, ...SIZE, ...FAULTS, ...TTL],
      );
      expect({ stderr, status }).toEqual({ stderr: "", status: 0 });
      const report: OversellReport = JSON.parse(stdout);
      expect(report.locks).toMatch(new RegExp(`^${kind}://`));
      const [lockstep, ...others] = report.strategies.toReversed();
      expect(lockstep).toMatchObject({ sold: 6, oversold: 0, lost: 0, refused: 1 });
      for (const one of [...others, lockstep]) expect(one?.overlaps).toBeGreaterThan(0);
      // The frozen process writes what it has read before the others sold.
      for (const { oversold, lost } of others) expect(oversold + lost).toBeGreaterThan(0);
      await drop();
    },
  );

  test("a store without records that expire has no hand-written lock", async () => {
    const { file, remove } = await temporaryFile();
    const urls = ["--store", `sqlite:${file}`, "--locks", "zookeeper://127.0.0.1:1"];
    const named = await cliInProcess("oversell", ...urls, "--strategy", "as-in-the-incident");
    expect(named).toMatchObject({ status: 64, stderr: expect.stringContaining("set-if-absent") });
    await remove();
  });
});
