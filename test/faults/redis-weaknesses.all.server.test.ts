import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compareFence } from "../../core/lock/fence.ts";
import { stepClock, steppableClock } from "../../infra/clock/clock.ts";
import { OwnRedis } from "../support/own-redis.ts";
import { OwnMasters } from "../support/own-redlock.ts";
import { until } from "../support/until.ts";

const held = { ttl: 120_000, wait: 20_000, renew: false };

/** The step of the clocks: longer than the ttl. */
const STEP = 600_000;

describe("Redlock", () => {
  let own: OwnMasters;

  beforeAll(async () => {
    own = await OwnMasters.start({ env: await steppableClock() });
  });

  afterAll(() => own[Symbol.asyncDispose]());

  const step = async (masters: readonly number[], ahead: number) => {
    for (const master of masters) await stepClock(own.node(master), ahead);
  };

  /** Takes a lock on all five masters. */
  const taken = async (name: string) => {
    const lock = await own.locks().lock(name, held);
    await until(async () => (await own.owners(name)).every((owner) => owner !== undefined));
    return lock;
  };

  test("has masters whose clocks move while they run, and stay moved after a restart", async () => {
    const ahead = async (master: number) => {
      const [seconds] = (await own.call(master, "TIME")) as readonly string[];
      return BigInt(Math.round((Number(seconds) * 1_000 - Date.now()) / STEP));
    };
    expect(await ahead(0)).toBe(0n);
    await step([0], STEP);
    expect(await ahead(0)).toBe(1n);
    expect(await ahead(1)).toBe(0n);
    await step([0], -2 * STEP);
    await own.signal("SIGKILL", 0);
    await own.node(0).start();
    expect(await ahead(0)).toBe(-2n);
    await step([0], 0);
  });

  test("is not affected when two of five clocks jump forward", async () => {
    const lock = await taken("a");
    await step([0, 2], STEP);
    expect(await own.locks().tryLock("a", held)).toBeUndefined();
    await lock.ensure(2 * held.ttl);
    expect(await lock.unlock()).toBe("released");
    await step([0, 2], 0);
  });

  test("has a second holder with a higher fence when three of five clocks jump forward", async () => {
    const lock = await taken("b");
    await step([0, 2, 4], STEP);
    const second = await own.locks().lock("b", held);
    lock.assertHeld();
    second.assertHeld();
    expect(compareFence(lock.fence, second.fence)).toBe(-1);
    expect(await lock.unlock()).toBe("was-lost");
    second.assertHeld();
    await second.unlock();
    // When the clocks are right again, fences still rise.
    await step([0, 2, 4], 0);
    const third = await own.locks().lock("b", held);
    expect(compareFence(second.fence, third.fence)).toBe(-1);
  });

  test("has a second holder when three of five masters lose their data and restart within a ttl", async () => {
    const lock = await taken("c");
    for (const master of [0, 1, 2]) {
      await own.signal("SIGKILL", master);
      await own.node(master).start();
    }
    const second = await own.locks().lock("c", held);
    lock.assertHeld();
    second.assertHeld();
    // The tokens are lost, and each master's next token is at least its clock, in whole seconds.
    expect(second.fence.token).toBeGreaterThanOrEqual(lock.fence.token);
  });
});

describe.concurrent("a failover of Redis", () => {
  /** Starts a primary and a replica, and cuts off the replica once it has the last token. */
  const start = async (token: bigint) => {
    const own = await OwnRedis.start("redis-replica");
    const primary = own.client();
    const promoted = own.client({ port: own.replica.config.port });
    await primary.call(["SET", "{lockstep}fence:a", String(token)]);
    await until(async () => (await promoted.call(["GET", "{lockstep}fence:a"])) === String(token));
    await promoted.call(["REPLICAOF", "127.0.0.1", 1]);
    const promote = async () => {
      await own.node.kill("SIGKILL");
      await promoted.call(["REPLICAOF", "NO", "ONE"]);
      return own.locks({ redis: promoted }).lock("a", held);
    };
    const close = async () => {
      // Otherwise the release would be repeated on a stopped server.
      await primary.close();
      await own[Symbol.asyncDispose]();
    };
    return { own, primary, promote, [Symbol.asyncDispose]: close };
  };

  test("issues both holders the same fence when tokens are above the clocks", async () => {
    await using started = await start(2n ** 60n);
    const { own, primary, promote } = started;
    const lock = await own.locks({ redis: primary }).lock("a", held);
    const second = await promote();
    lock.assertHeld();
    second.assertHeld();
    expect(compareFence(lock.fence, second.fence)).toBe(0);
  });

  test("leaves one holder when the lock waits for its replica: the first client does not get it", async () => {
    await using started = await start(1n);
    const { own, primary, promote } = started;
    const locks = own.locks({ redis: primary, replicas: 1, replicaTimeout: 200 });
    await expect(locks.lock("a", held)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    (await promote()).assertHeld();
  });
});
