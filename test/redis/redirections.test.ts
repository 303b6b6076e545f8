import { expect, test } from "vitest";
import { instant } from "../../core/lock/time.ts";
import { redisOver } from "../../core/stores/redis/client/client.ts";
import { CommandFailure } from "../../core/stores/redis/client/failure.ts";
import { pause } from "../support/until.ts";

test.each(["ASK", "MOVED", "TRYAGAIN"])(
  "a cluster whose slot is being moved (%s) is unavailable for now once the time is over",
  async (code) => {
    const connection = {
      isOpen: true,
      heardAt: instant(),
      close() {},
      async send() {
        await pause(5);
        throw new CommandFailure("answered", `${code} 1 127.0.0.1:7000`);
      },
    };
    const route = {
      address: "redis cluster at a:1",
      connect: async () => connection,
      redirect: () => ({ hasMoved: false }),
    };
    await using redis = redisOver(route, 1);
    const reading = redis.call(["GET", "a"], { reads: true });
    await expect(reading).rejects.toMatchObject({ code: "STORE_UNAVAILABLE", retryable: true });
  },
);
