import { describe, expect, inject, test } from "vitest";
import type { LockEvent } from "../../core/lock/events.ts";
import { keyOf } from "../../core/stores/redis/client/names.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { openShop } from "../../functions/oversell/open-shop.ts";
import { OrderHandler } from "../../functions/oversell/order-handler.ts";
import type { OversellReport } from "../../functions/oversell/oversell.ts";
import { STRATEGIES, type Strategy, stockKeeper } from "../../functions/oversell/strategy.ts";
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

describe.concurrent("locks in one store, and stock in another", () => {
  test.each(pairs)(
    "a holder whose lock in %s has expired is refused by the stock in the first of the %s",
    {
      timeout: 240_000,
    },
    async (_kind, database, toUrl) => {
      const [server] = inject(database);
      if (!server) throw new Error(`no server is among the ${database}`);
      const { url, drop } = await temporaryDatabase(server);
      const [store, locks]: readonly string[] = [url, toUrl()];
      await using opened = await open(store ?? "");
      await migrate(opened.database);
      await using lockedBy = await open(locks ?? "");
      const sell = async (name: string) => {
        const strategy = { ...STRATEGIES.find((one) => one.name === name), renewal: false };
        const times = { ttlMillis: 3_000, pauseMillis: 1, workMillis: 1, answersAt: [] };
        const config = { store: url, locks, shop: name, strategy: strategy as Strategy, ...times };
        const handlerOf = (injectFault: () => Promise<void>) =>
          new OrderHandler(opened, config, injectFault, lockedBy);
        const shop = openShop(opened, name, lockedBy);
        await shop.open(6, stockKeeper(config.strategy));
        const second = handlerOf(async () => {});
        const answers: string[] = [];
        // The first holder stands still until its lock has expired, and another one has sold.
        const first = handlerOf(async () => {
          while (answers.at(-1) !== "sold") {
            answers.push((await second.handle({ orderId: "b", fault: undefined }, 0)).answer);
          }
        });
        const { answer } = await first.handle({ orderId: "a", fault: "freeze" }, 0);
        const { remaining, sales } = await shop.totals();
        await shop.close();
        return { answer, remaining, sales: sales.length };
      };
      // Both write what is left of six.
      expect(await sell("renewed")).toEqual({ answer: "sold", remaining: 5, sales: 2 });
      expect(await sell("fence-claimed")).toEqual({ answer: "refused", remaining: 5, sales: 1 });
      expect(await sell("lockstep")).toEqual({ answer: "refused", remaining: 5, sales: 1 });
      await Promise.all([opened.close(), lockedBy.close()]);
      await drop();
    },
  );

  test("the command keeps the stock in a file, and the locks in Redis", {
    timeout: 240_000,
  }, async () => {
    const { file, remove } = await temporaryFile();
    const locks = `${redisServer("redis").url}?prefix=${anyPrefix()}`;
    const size = ["--stock", "4", "--buyers", "6", "--workers", "2", "--duplicates", "0"];
    const faults = ["--freezes", "0", "--slow", "0", "--kills", "0"];
    const urls = ["--store", `sqlite:${file}`, "--locks", locks, "--strategy", "lockstep"];
    const { stdout } = await cli("oversell", ...urls, ...size, ...faults, "--json");
    const report: OversellReport = JSON.parse(stdout);
    expect(report.locks).toMatch(/^redis:/);
    expect(report.strategies).toMatchObject([{ sold: 4, oversold: 0, lost: 0 }]);
    await remove();
  });

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
