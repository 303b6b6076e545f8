import { expect, test } from "vitest";
import { Ear } from "../../../core/stores/redis/ear.ts";
import { OwnRedis } from "../../support/own-redis.ts";

const never = new AbortController().signal;

test("a bell keeps what is called, and tells to look again when its connection was cut", async () => {
  await using own = await OwnRedis.start();
  const redis = own.client();
  const ear = new Ear(redis, "calls");
  await ear.listens(never);
  const bell = ear.bellOf("a");
  await redis.call(["PUBLISH", "calls", "b"]);
  expect(await bell.heard(1, never)).toBeUndefined();
  await redis.call(["PUBLISH", "calls", "a"]);
  expect(await bell.heard(60_000, never)).toBe("your turn");
  const heard = bell.heard(60_000, never);
  await redis.call(["CLIENT", "KILL", "TYPE", "pubsub"]);
  expect(await heard).toBe("look again");
  const caller = new AbortController();
  const given = bell.heard(60_000, caller.signal);
  caller.abort("enough");
  await expect(given).rejects.toBe("enough");
  ear.close();
});
