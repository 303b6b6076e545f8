import { expect, test } from "vitest";
import { pollingStore } from "../../../core/lock/store.ts";
import { keyOf } from "../../../core/stores/redis/client/names.ts";
import { script } from "../../../core/stores/redis/client/redis.ts";
import { RedisClaims } from "../../../core/stores/redis/locks/claims.ts";
import { describeClaims } from "../../conformance/claims.ts";
import { anyPrefix, openLocal } from "../../support/redis-under-test.ts";

const never = new AbortController().signal;

/** Opens claims under a unique prefix, with their client. */
function open() {
  const [redis, prefix] = [openLocal(), anyPrefix()];
  const options = { prefix, closeRedis: true };
  return { redis, prefix, claims: new RedisClaims(redis, options) };
}

describeClaims("redis", async () => open().claims);

test("a repeated claim has the same tokens, and lasts for one ttl from then on", async () => {
  const { claims } = open();
  const claim = { names: ["a", "b"], owner: "x", ttl: 20_000, lockDelay: 0 };
  const first = await claims.claim({ ...claim, ttl: 5_000 }, never);
  expect(await claims.claim(claim, never)).toEqual(first);
  expect(await claims.freeIn(["a", "b"], never)).toBeGreaterThan(10_000);
  expect(await claims.claim({ ...claim, owner: "y" }, never)).toBeUndefined();
  expect(await claims.drop(["a", "b"], "y", never)).toBe(false);
  expect(await claims.drop(["a", "b"], "x", never)).toBe(true);
  expect(await claims.freeIn(["a", "b"], never)).toBe(0);
  const [token] = (await claims.claim({ ...claim, names: ["a"] }, never)) ?? [];
  expect(token?.token).toBeGreaterThan(first?.[0]?.token ?? 0n);
  await claims.close();
});

test("tokens rise from one that is ahead of the clock, up to the highest token", async () => {
  const { redis, prefix, claims } = open();
  const claim = { names: ["a"], owner: "x", ttl: 20_000, lockDelay: 0 };
  const fence = keyOf(prefix, "fence", "a");
  await redis.call(["SET", fence, "9223372036854775805"]);
  expect(await claims.claim(claim, never)).toEqual([
    { generation: 0, token: 9223372036854775806n },
  ]);
  await claims.drop(["a"], "x", never);
  await redis.call(["SET", fence, "9223372036854775807"]);
  await expect(claims.claim(claim, never)).rejects.toMatchObject({ code: "STORE_REFUSED" });
  expect((await claims.inspect("a")).holder).toBeUndefined();
  await claims.close();
});

test("a lock without an expiry is never free", async () => {
  const { redis, prefix, claims } = open();
  await redis.call(["SET", keyOf(prefix, "lock", "a"), "somebody"]);
  expect(await claims.freeIn(["a", "b"], never)).toBe(Number.POSITIVE_INFINITY);
  await claims.close();
});

test("the release of a foreign holder whose value is no text is refused after two requests", async () => {
  const { redis, prefix, claims } = open();
  const locks = pollingStore(claims);
  await (await locks.lock("a", { ttl: 20_000, wait: 0 })).unlock();
  const take = script("return redis.call('SET', KEYS[1], '\\255\\254', 'PX', 60000)");
  await redis.run(take, { keys: [keyOf(prefix, "lock", "a")] });
  const { fence = "", holder = "" } = await locks.inspect("a");
  await expect(locks.release("a", { fence })).rejects.toMatchObject({
    code: "STORE_REFUSED",
    message: expect.stringContaining(holder),
  });
  expect((await locks.inspect("a")).holder).toBe(holder);
  await locks.close();
});

test("a prefix of names is not a pattern", async () => {
  const { claims } = open();
  const names = ["a*b", "axb", "a?b", "a[x]b", "a\\*b", "a[^x]b"];
  await claims.claim({ names, owner: "x", ttl: 20_000, lockDelay: 0 }, never);
  for (const start of ["a*", "a?", "a[x]", "a\\", "a[^"]) {
    const found = (await claims.list(start)).map(({ name }) => name);
    expect(found).toEqual(names.filter((name) => name.startsWith(start)));
  }
  await claims.close();
});
