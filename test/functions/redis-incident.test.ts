import { Redis as Ioredis } from "ioredis";
import { expect, test } from "vitest";
import { redisInventory } from "../../core/inventory/redis.ts";
import { keyOf } from "../../core/redis/names.ts";
import { redisShop } from "../../functions/oversell/redis-shop.ts";
import { cli } from "../support/cli.ts";
import { anyPrefix, openLocal, redisServer } from "../support/redis-under-test.ts";

/** What clients send to the server about keys with this prefix, from now on; not what scripts do. */
async function listenIn(prefix: string) {
  const [port = 0] = redisServer("redis").ports;
  const client = new Ioredis({ port });
  const monitor = await client.monitor();
  const heard: string[][] = [];
  monitor.on("monitor", (_, args: string[], source: string) => {
    if (source !== "lua" && args.some((arg) => arg.includes(prefix))) heard.push(args);
  });
  const stop = () => {
    monitor.disconnect();
    client.disconnect();
  };
  return { heard, stop };
}

test("the incident's strategy sends the incident's commands, and the repair compares before it deletes", async () => {
  const prefix = anyPrefix();
  const { heard, stop } = await listenIn(prefix);
  const names = ["as-in-the-incident", "owner-checked"];
  const size = ["--stock", "3", "--buyers", "6", "--workers", "2", "--duplicates", "0"];
  const { status } = await cli(
    "oversell",
    ...["--store", `${redisServer("redis").url}?prefix=${prefix}`],
    ...names.flatMap((name) => ["--strategy", name]),
    ...[...size, "--slow", "0", "--freezes", "0", "--kills", "0"],
  );
  expect(status).toBe(0);
  stop();
  const lockKey = keyOf(prefix, "oversell-lock", "");
  const locks = [
    ...new Set(heard.flatMap((args) => args.filter((arg) => arg.startsWith(lockKey)))),
  ];
  expect(locks).toHaveLength(2);
  const [incident = [], repaired = []] = locks.map((lock) =>
    heard.filter((args) => args.includes(lock)).slice(0, -1),
  );
  const taken = ["SET", locks[0], expect.any(String), "EX", "1", "NX"];
  expect(incident).toContainEqual(taken);
  expect(incident.filter(([name]) => name === "DEL")).toEqual(Array(6).fill(["DEL", locks[0]]));
  expect(new Set(incident.map(([name]) => name))).toEqual(new Set(["SET", "DEL"]));
  for (const args of incident) if (args[0] === "SET") expect(args).toEqual(taken);
  expect(new Set(repaired.map(([name]) => name?.slice(0, 4)))).toEqual(new Set(["SET", "EVAL"]));
  const stock = keyOf(prefix, "oversell-stock", "");
  expect(heard.find(([name, key]) => name === "GET" && key?.startsWith(stock))).toBeDefined();
}, 60_000);

test("a lock of no whole seconds is told in milliseconds", async () => {
  const prefix = anyPrefix();
  await using redis = openLocal();
  const shop = redisShop(redis, prefix, redisInventory(redis, { prefix }), "a");
  const { heard, stop } = await listenIn(prefix);
  expect(await shop.setIfAbsent("one", 1_500)).toBe(true);
  expect(await shop.setIfAbsent("two", 10_000)).toBe(false);
  await shop.removeIfOwner("two");
  expect(await shop.setIfAbsent("two", 10_000)).toBe(false);
  await shop.removeIfOwner("one");
  expect(await shop.setIfAbsent("two", 10_000)).toBe(true);
  await shop.close();
  stop();
  const key = keyOf(prefix, "oversell-lock", "a");
  expect(heard.filter(([name]) => name === "SET")).toEqual([
    ["SET", key, "one", "PX", "1500", "NX"],
    ...Array(3).fill(["SET", key, "two", "EX", "10", "NX"]),
  ]);
});
