import { expect, test } from "vitest";
import type { Redis } from "../../../core/stores/redis/client/redis.ts";
import { RedlockClaims } from "../../../core/stores/redlock/claims.ts";
import { redlockLocks } from "../../../core/stores/redlock/locks.ts";
import { describeClaims } from "../../conformance/claims.ts";
import { Masters } from "../../support/own-redlock.ts";
import { anyPrefix, openLocal, redisServer } from "../../support/redis-under-test.ts";
import { pause, until } from "../../support/until.ts";

describeClaims("redlock", async () => {
  const masters = redisServer("redlock").ports.map((port) => openLocal({ port }));
  return new RedlockClaims(masters, { prefix: anyPrefix(), timeout: 2_000, closeMasters: true });
});

/** A client of a master that answers late. */
function slow(redis: Redis, millis: number): Redis {
  return {
    address: redis.address,
    async run(script, input) {
      await pause(millis);
      return redis.run(script, input);
    },
    call: (command, options) => redis.call(command, options),
    close: () => redis.close(),
    [Symbol.asyncDispose]: () => redis.close(),
  };
}

test("a master that granted the lock late, with a higher token, does not hide the fence of its quorum", async () => {
  await using masters = Masters.shared();
  const lock = await masters.locks().lock("job", { ttl: 60_000, wait: 60_000 });
  const fence = String(lock.fence);
  // A quorum has answered, the other masters may be late.
  const stored = await until(() => masters.call(0, "GET", masters.key("fence", "job")));
  await masters.call(
    0,
    "SET",
    masters.key("fence", "job"),
    String(BigInt(String(stored)) + 1_000_000n),
  );
  const clients = masters.ports.map((port) => openLocal({ port }));
  const late = clients.map((redis, i) => (i < 3 ? redis : slow(redis, 200)));
  await using operator = redlockLocks(late, { prefix: masters.prefix, closeMasters: true });
  expect(await operator.inspect("job")).toMatchObject({ fence });
  expect(await operator.list()).toMatchObject([{ name: "job", fence }]);
  expect(await operator.release("job", { fence })).toMatchObject({ fence });
  expect(await lock.unlock()).toBe("was-lost");
});
