import { readFileSync } from "node:fs";
import { Miniflare } from "miniflare";
import { describe, expect, onTestFinished, test } from "vitest";
import { script } from "../../core/stores/redis/client/redis.ts";
import { type RedisRestOptions, redisRestClient } from "../../core/stores/redis/client/rest.ts";
import { redisLocks } from "../../core/stores/redis/locks/index.ts";
import { openRedisRest } from "../../core/stores/redis/rest.ts";
import { redisStore } from "../../core/stores/redis/store.ts";
import { open } from "../../infra/open.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { startServer } from "../../infra/servers/start.ts";
import { anyPrefix, openLocal, redisServer } from "../support/redis-under-test.ts";
import { RestProxy } from "../support/rest-proxy.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { bundleForWeb } from "../support/web-bundle.ts";

const COUNT = script("return redis.call('INCR', KEYS[1])");
const READ = script("return redis.call('GET', KEYS[1])", { reads: true });

async function startProxy(port = redisServer("redis").ports[0] ?? 0) {
  const rest = await RestProxy.to(port);
  onTestFinished(() => rest[Symbol.asyncDispose]());
  return rest;
}

function client(rest: RestProxy, options: Partial<RedisRestOptions> = {}) {
  return redisRestClient({ url: rest.url, token: rest.token, ...options });
}

describe("a script over HTTP", () => {
  test("is sent by its hash, and once by its text to a server that does not know it", async () => {
    await using server = await startServer("redis");
    const rest = await startProxy(Number(new URL(server.url).port));
    const redis = client(rest);
    const names = () => rest.commands.splice(0).map(([name]) => name);
    expect(await redis.run(COUNT, { keys: ["a"] })).toBe("1");
    expect(names()).toEqual(["EVALSHA", "EVAL"]);
    expect(await redis.run(COUNT, { keys: ["a"] })).toBe("2");
    expect(names()).toEqual(["EVALSHA"]);
  });

  test("gets all kinds of replies", async () => {
    const redis = client(await startProxy());
    const text = "a'\"\\\0\u2028\u{1f600}\n";
    const reply = script("return { ARGV[1], 7, false, { 'b' } }");
    expect(await redis.run(reply, { keys: [], args: [text] })).toEqual([
      text,
      "7",
      undefined,
      ["b"],
    ]);
  });

  test("that fails by itself, or is refused by the server, has certainly not been executed", async () => {
    const redis = client(await startProxy());
    const keys = [anyPrefix()];
    const refused = { code: "STORE_REFUSED" };
    await expect(redis.run(script("return redis.call('NO')"), { keys })).rejects.toMatchObject(
      refused,
    );
    await expect(redis.call(["NO"])).rejects.toMatchObject(refused);
  });
});

describe("an answer over HTTP", () => {
  test.each([
    ["that is lost", undefined],
    ["with status 429", { status: 429, body: "too many requests" }],
    ["with status 500", { status: 500, body: '{"error":"ERR away"}' }],
    ["without a result", { status: 200, body: "<html>" }],
  ] as const)(
    "%s leaves a write unknown and a read unanswered, and nothing is sent again",
    async (_, answer) => {
      const rest = await startProxy();
      const redis = client(rest);
      const keys = [anyPrefix()];
      await redis.run(COUNT, { keys });
      const next = () => (answer ? rest.answerNext(answer) : rest.loseNextAnswer());
      for (const write of [() => redis.run(COUNT, { keys }), () => redis.call(["INCR", ...keys])]) {
        next();
        await expect(write()).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
      }
      for (const read of [
        () => redis.run(READ, { keys }),
        () => redis.call(["GET", ...keys], { reads: true }),
      ]) {
        next();
        await expect(read()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      }
      expect(await redis.call(["GET", ...keys])).toBe(answer ? "1" : "3");
    },
  );

  test("that is no answer of the REST API says so", async () => {
    const rest = await startProxy();
    const redis = client(rest);
    for (const status of [302, 404]) {
      rest.answerNext({ status, body: "elsewhere" });
      await expect(redis.call(["INCR", "a"])).rejects.toMatchObject({
        code: "STORE_REFUSED",
        message: expect.stringContaining(`this is not Upstash's REST API: HTTP ${status}`),
      });
    }
  });

  test("that refuses the token is a refusal, and shows no token", async () => {
    const rest = await startProxy();
    const lock = redisLocks(client(rest, { token: "another-one" })).lock("a", {
      ttl: 1_000,
      wait: 0,
    });
    const error = await lock.catch((error) => error);
    expect(error).toMatchObject({ code: "STORE_REFUSED" });
    expect(`${error} ${error.cause}`).not.toContain("another-one");
    expect(rest.commands).toEqual([]);
  });

  test("that does not come in time is given up after the timeout", async () => {
    const rest = await startProxy();
    await using wire = await TcpProxy.to(rest.port);
    const redis = client(rest, { url: `http://127.0.0.1:${wire.port}`, timeout: 100 });
    wire.cut();
    await expect(redis.call(["INCR", anyPrefix()])).rejects.toMatchObject({
      code: "UNKNOWN_OUTCOME",
    });
    await expect(redis.call(["GET", "a"], { reads: true })).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
  });

  test("of a server that is away is certain, and so is that of a closed client", async () => {
    const rest = await startProxy();
    const away = client(rest, { url: `http://127.0.0.1:${await freePort()}` });
    await expect(away.call(["INCR", "a"])).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    const redis = client(rest);
    await redis.close();
    await expect(redis.call(["INCR", "a"])).rejects.toMatchObject({ code: "STORE_CLOSED" });
    expect(rest.commands).toEqual([]);
  });
});

test("a sale over HTTP is made once, whichever answer is lost", async () => {
  const rest = await startProxy();
  const { inventory, locks } = redisStore(client(rest), { prefix: anyPrefix() });
  await inventory.set({ sku: "a", quantity: 5, operationId: "set" });
  const faults = [
    () => rest.loseNextAnswer(),
    () => rest.answerNext({ status: 429, body: "" }),
    () => rest.answerNext({ status: 503, body: "" }),
  ];
  for (const [i, fault] of faults.entries()) {
    fault();
    const sale = { sku: "a", quantity: 1, operationId: `order-${i}` };
    expect(await inventory.decrement(sale)).toMatchObject({ remaining: 4 - i });
  }
  expect(await inventory.get("a")).toMatchObject({ onHand: 2, sold: 3 });
  await locks.close();
});

test("a lock over HTTP and one over a connection are one lock, with rising fences", async () => {
  const rest = await startProxy();
  const prefix = anyPrefix();
  await using direct = openLocal();
  const here = redisLocks(direct, { prefix });
  await using there = await openRedisRest({ url: rest.url, token: rest.token }, { prefix });
  const terms = { ttl: 30_000, wait: 30_000 };
  const first = await here.lock("a", terms);
  expect(await there.locks.tryLock("a", terms)).toBeUndefined();
  const second = there.locks.lock("a", terms);
  await first.unlock();
  const lock = await second;
  const third = here.lock("a", terms);
  await lock.unlock();
  const fences = [first, lock, await third].map(({ fence }) => String(fence));
  expect(fences).toEqual([...new Set(fences)].sort());
  await here.close();
});

test("bad settings are refused, and no message shows the token", async () => {
  const token = "secret token";
  expect(() => redisRestClient({ url: "https://host", token })).toThrow(/token .* visible ASCII/);
  expect(() => redisRestClient({ url: "https://host", token })).not.toThrow(token);
  for (const url of ["redis://host", "host", "https://user:word@host", "https://host?token=a"]) {
    expect(() => redisRestClient({ url, token: "a" })).toThrow(/url .* must be like/);
  }
  expect(() => redisRestClient({ url: "https://host", token: "a", timeout: 0 })).toThrow(
    RangeError,
  );
  const redis = redisRestClient({ url: "https://host", token: "a" });
  expect(() => redisLocks(redis, { replicas: 1 })).toThrow(/cannot wait for replicas/);
  for (const url of [
    "redis+https://host",
    "redis+https://user:word@host",
    "redis+https://:a@b,c",
  ]) {
    await expect(open(url)).rejects.toThrow("its token as the password");
  }
});

test("the Worker of docs/edge.md sells 25 units to 40 buyers at once in workerd", async () => {
  await using server = await startServer("redis");
  const rest = await startProxy(Number(new URL(server.url).port));
  const example = readFileSync(new URL("../../examples/edge-redis.js", import.meta.url), "utf8");
  const { code, foreign } = await bundleForWeb(example);
  expect(foreign).toEqual([]);
  const worker = new Miniflare({
    modules: [{ type: "ESModule", path: "worker.mjs", contents: code }],
    bindings: { UPSTASH_REDIS_REST_URL: rest.url, UPSTASH_REDIS_REST_TOKEN: rest.token },
    compatibilityDate: "2026-07-01",
  });
  onTestFinished(() => worker.dispose());
  await using shop = await openRedisRest({ url: rest.url, token: rest.token }, { prefix: "shop" });
  await shop.inventory.set({ sku: "teapot", quantity: 25, operationId: "count" });
  /** Again with the same key, as long as the lock is busy. */
  const buy = async (key: string): Promise<unknown> => {
    const headers = { "Idempotency-Key": key };
    const answer = await worker.dispatchFetch("http://shop.test/", { headers });
    if (!answer.headers.has("Retry-After"))
      return ((await answer.json()) as { outcome: string }).outcome;
    await answer.body?.cancel();
    return buy(key);
  };
  const outcomes = await Promise.all(Array.from({ length: 40 }, (_, i) => buy(`order-${i}`)));
  expect(outcomes.filter((one) => one === "applied")).toHaveLength(25);
  expect(outcomes.filter((one) => one === "sold-out")).toHaveLength(15);
  expect(await shop.inventory.get("teapot")).toMatchObject({ onHand: 0, sold: 25 });
  expect(await shop.locks.list()).toEqual([]);
});
