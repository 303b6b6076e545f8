import { describe, expect, inject, test } from "vitest";
import { openShop } from "../../functions/oversell/open-shop.ts";
import type { OversellReport } from "../../functions/oversell/oversell.ts";
import { open } from "../../infra/open.ts";
import { cli } from "../support/cli.ts";
import { cells } from "../support/matrix.ts";
import { anyPrefix, redisServer } from "../support/redis-under-test.ts";
import { temporaryDatabase } from "../support/under-test.ts";

/** Twelve units, and four orders that arrive twice: with seed 6, one of them among the first seven deliveries. */
const SIZE = ["--stock", "12", "--buyers", "16", "--duplicates", "4"];

async function sell(store: string, names: readonly string[], faults: readonly string[]) {
  const strategies = names.flatMap((name) => ["--strategy", name]);
  const options = ["--store", store, ...strategies, ...SIZE, "--slow", "0", ...faults];
  const { stdout, stderr, status } = await cli("oversell", "--seed", "6", "--json", ...options);
  expect({ stderr, status }).toEqual({ stderr: "", status: 0 });
  const report: OversellReport = JSON.parse(stdout);
  expect(report.strategies.map(({ name }) => name)).toEqual(names);
  return report.strategies;
}

describe.concurrent("the ways to sell that are widely known", { timeout: 240_000 }, () => {
  test("a crash after SETNX blocks all buyers, a crash after DECR loses a unit", async () => {
    const url = `${redisServer("redis").url}?prefix=${anyPrefix()}`;
    const names = ["setnx-then-expire", "decr-and-test"];
    const [setnx, decr] = await sell(url, names, [
      // A single process handles the orders in turn, and is killed with the second one.
      ...["--workers", "1", "--freezes", "0", "--kills", "1"],
    ]);
    expect(setnx).toMatchObject({ sold: 1, stuck: 15 });
    expect(setnx?.why).toMatch(/process \d was killed between SETNX and EXPIRE, and \d+ buyers/);
    expect(decr).toMatchObject({ sold: 11, oversold: 0, lost: 1, lowestStock: 0, stuck: 0 });
    expect(decr?.duplicates).toBeGreaterThan(0);
    expect(decr?.why).toContain("killed between DECR and the record of its sale");
  });

  test.each(
    cells([...inject("sqlServers"), ...inject("postgresServers")]).map((server) => ({ server })),
  )(
    "a version column refuses late writes, and a row's lock makes all wait: $server.name",
    async ({ server }) => {
      const { url, drop } = await temporaryDatabase(server);
      const names = ["version-column", "select-for-update"];
      const [version, forUpdate] = await sell(url, names, [
        ...["--workers", "3", "--freezes", "1", "--kills", "1"],
      ]);
      for (const one of [version, forUpdate]) {
        expect(one).toMatchObject({ sold: 12, oversold: 0, lost: 0, lowestStock: 0, stuck: 0 });
        expect(one?.claimsSafe).toBe(false);
      }
      expect(forUpdate?.refused).toBe(0);

      const store: string = url;
      await using opened = await open(store);
      const shop = openShop(opened, "shop");
      await shop.open(2, "by-hand");
      const read = await shop.row?.readVersion();
      const write = (saleId: string) =>
        shop.row?.writeVersion({ orderId: "order-1", saleId }, 1, read?.version ?? "");
      expect([await write("a"), await write("b")]).toEqual(["sold", "refused"]);
      await shop.close();
      await opened.close();
      await drop();
    },
  );
});
