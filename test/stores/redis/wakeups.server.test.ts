import { expect, test } from "vitest";
import { WakeupSubscription } from "../../../core/stores/redis/locks/wakeups.ts";
import { OwnRedis } from "../../support/own-redis.ts";

const never = new AbortController().signal;

test("a wake-up is kept until its waiter waits, and a cut subscription notifies without a turn", async () => {
  await using own = await OwnRedis.start();
  const redis = own.client();
  const subscription = new WakeupSubscription(redis, "calls");
  await subscription.ready(never);
  const wakeup = subscription.add("a");
  const { notifier } = wakeup;
  await redis.call(["PUBLISH", "calls", "b"]);
  expect(await notifier.wait({ span: 1 })).toBe(false);
  const notified = notifier.wait({ span: 60_000 });
  await redis.call(["CLIENT", "KILL", "TYPE", "pubsub"]);
  expect(await notified).toBe(true);
  expect(wakeup.isTurn).toBe(false);
  await redis.call(["PUBLISH", "calls", "a"]);
  expect(await notifier.wait({ span: 60_000 })).toBe(true);
  expect(wakeup.isTurn).toBe(true);
  const caller = new AbortController();
  const aborted = notifier.wait({ span: 60_000, signal: caller.signal });
  caller.abort("enough");
  await expect(aborted).rejects.toBe("enough");
  subscription.close();
});
