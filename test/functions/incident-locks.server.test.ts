import { describe, expect, inject, test } from "vitest";
import type { LockEvent } from "../../core/lock/events.ts";
import { keyOf } from "../../core/stores/redis/client/names.ts";
import { openShop } from "../../functions/oversell/open-shop.ts";
import { OrderHandler } from "../../functions/oversell/order-handler.ts";
import type { OversellReport } from "../../functions/oversell/oversell.ts";
import { STRATEGIES, type Strategy } from "../../functions/oversell/strategy.ts";
import { open } from "../../infra/open.ts";
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

  test("the locks are taken in their own store", async () => {
    const { file, remove } = await temporaryFile();
    const url: string = `sqlite:${file}`;
    await using opened = await open(url);
    const prefix = anyPrefix();
    const redisUrl: string = `${redisServer("redis").url}?prefix=${prefix}`;
    const events: LockEvent[] = [];
    await using redis = await open(redisUrl, { onEvent: (event) => events.push(event) });

    const shop = openShop(opened, "shop", redis);
    await shop.open(1, "by-hand");
    expect(await shop.setIfAbsent("one", 60_000)).toBe(true);
    expect(await redis.redis.call(["GET", keyOf(prefix, "oversell-lock", "shop")])).toBe("one");
    expect(await shop.removeIfOwner("two")).toBe(undefined);
    expect(await shop.setIfAbsent("two", 60_000)).toBe(false);
    await shop.remove();
    expect(await shop.setnx?.setnx("three")).toBe(true);
    await shop.close();
    const sql = openShop(opened, "shop");
    expect(await sql.setIfAbsent("four", 60_000)).toBe(true);
    await sql.close();

    const [strategy] = STRATEGIES.filter(({ name }) => name === "fence-claimed");
    const times = { ttlMillis: 60_000, pauseMillis: 1, workMillis: 1, answersAt: [] };
    const stores = { store: url, locks: redisUrl, shop: "shop" };
    const config = { ...stores, ...times, strategy: strategy as Strategy };
    const handler = new OrderHandler(opened, config, async () => {}, redis);
    await openShop(opened, "shop", redis).open(1, "by-hand");
    const order = { orderId: "order-1", fault: undefined };
    expect(await handler.handle(order, 0)).toMatchObject({ answer: "sold" });
    expect(events.map(({ type }) => type)).toContain("acquired");
    await openShop(opened, "shop", redis).close();
    await remove();
  });

  test("a store without records that expire has no hand-written lock", async () => {
    const { file, remove } = await temporaryFile();
    const urls = ["--store", `sqlite:${file}`, "--locks", "zookeeper://127.0.0.1:1"];
    const named = await cliInProcess("oversell", ...urls, "--strategy", "as-in-the-incident");
    expect(named).toMatchObject({ status: 64, stderr: expect.stringContaining("set-if-absent") });
    await remove();
  });
});
