import { expect, test } from "vitest";
import { keyOf, PREFIX } from "../../core/stores/redis/client/names.ts";
import { redisInventory } from "../../core/stores/redis/inventory/index.ts";
import { redisShop } from "../../functions/oversell/redis-shop.ts";
import { cli } from "../support/cli.ts";
import { OwnRedis } from "../support/own-redis.ts";
import { monitor } from "../support/redis-monitor.ts";

test("each strategy sends its own commands, and the repair compares before it deletes", async () => {
  await using own = await OwnRedis.start();
  using wire = await monitor(own.client(), own.port);
  const names = ["as-in-the-incident", "setnx-then-expire", "owner-checked"];
  const size = ["--stock", "3", "--buyers", "6", "--workers", "2", "--duplicates", "0"];
  const { status } = await cli(
    "oversell",
    ...["--store", own.url, ...names.flatMap((name) => ["--strategy", name])],
    ...[...size, "--slow", "0", "--freezes", "0", "--kills", "0"],
  );
  expect(status).toBe(0);
  const heard = await wire.heard();
  const lockKey = keyOf(PREFIX, "oversell-lock", "");
  const locks = [
    ...new Set(heard.flatMap((args) => args.filter((arg) => arg.startsWith(lockKey)))),
  ];
  expect(locks).toHaveLength(3);
  const [incident = [], older = [], repaired = []] = locks.map((lock) =>
    // But for the last one, which removes the whole shop.
    heard.filter((args) => args.includes(lock)).slice(0, -1),
  );
  const taken = ["SET", locks[0], expect.any(String), "EX", "1", "NX"];
  expect(incident).toContainEqual(taken);
  expect(incident.filter(([name]) => name === "DEL")).toEqual(Array(6).fill(["DEL", locks[0]]));
  expect(new Set(incident.map(([name]) => name))).toEqual(new Set(["SET", "DEL"]));
  for (const args of incident) if (args[0] === "SET") expect(args).toEqual(taken);
  expect(older).toContainEqual(["SETNX", locks[1], expect.any(String)]);
  expect(older.filter(([name]) => name === "EXPIRE")).toEqual(
    Array(6).fill(["EXPIRE", locks[1], "1"]),
  );
  expect(older.filter(([name]) => name === "DEL")).toEqual(Array(6).fill(["DEL", locks[1]]));
  expect(new Set(repaired.map(([name]) => name?.slice(0, 4)))).toEqual(new Set(["SET", "EVAL"]));
  const stock = keyOf(PREFIX, "oversell-stock", "");
  expect(heard.find(([name, key]) => name === "GET" && key?.startsWith(stock))).toBeDefined();
});

test("a ttl of a fraction of a second is sent in milliseconds", async () => {
  await using own = await OwnRedis.start();
  const redis = own.client();
  const shop = redisShop(redis, PREFIX, redisInventory(redis), "a");
  using wire = await monitor(redis, own.port);
  expect(await shop.setIfAbsent("one", 60_500)).toBe(true);
  expect(await shop.setIfAbsent("two", 10_000)).toBe(false);
  await shop.removeIfOwner("two");
  expect(await shop.setIfAbsent("two", 10_000)).toBe(false);
  await shop.removeIfOwner("one");
  expect(await shop.setIfAbsent("two", 10_000)).toBe(true);
  await shop.close();
  const key = keyOf(PREFIX, "oversell-lock", "a");
  expect((await wire.heard()).filter(([name]) => name === "SET")).toEqual([
    ["SET", key, "one", "PX", "60500", "NX"],
    ...Array(3).fill(["SET", key, "two", "EX", "10", "NX"]),
  ]);
});
