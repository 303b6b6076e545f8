import { readFile, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LockLostError } from "../../core/lock/errors.ts";
import { compareFence, type Fence } from "../../core/lock/fence.ts";
import type { Script } from "../../core/stores/redis/client/redis.ts";
import { redlockLocks } from "../../core/stores/redlock/locks.ts";
import { RAISE_TOKENS } from "../../core/stores/redlock/scripts.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { describeEmptyRestart } from "../conformance/empty-restart.ts";
import { contend } from "../support/contend.ts";
import { faulty } from "../support/faulty-redis.ts";
import { DURABLE, Masters, OwnMasters } from "../support/own-redlock.ts";
import { openLocal } from "../support/redis-under-test.ts";
import { runCli } from "../support/script.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { stopTimers } from "../support/timers.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

/** A ttl that no pause of a busy machine outlasts. */
const LONG = 20_000;

/** Shorter than any wait for a silent master. */
const ATTEMPT = 500;

const held = { ttl: LONG, wait: LONG };
const waiting = { ttl: LONG, wait: LONG };

/** A first token above every clock, so that tokens only depend on earlier tokens. */
const ABOVE_CLOCKS = 2n ** 60n;

describeEmptyRestart("redlock", () => OwnMasters.start());

describe("masters that are killed", () => {
  let own: OwnMasters;

  beforeAll(async () => {
    own = await OwnMasters.start();
    await own.signal("SIGKILL", 1, 3);
  });

  afterAll(() => own[Symbol.asyncDispose]());

  test("two of five: the others suffice to take a lock, to keep it and to release it", async () => {
    const [ours, theirs] = [own.locks(), own.locks()];
    const lock = await ours.lock("a", { ttl: 6_000, wait: LONG });
    for (let i = 0; i < 4; i += 1) {
      expect(await theirs.tryLock("a", held)).toBeUndefined();
      await pause(2_000);
    }
    lock.assertHeld();
    expect((await theirs.inspect("a")).holder).toBeDefined();
    expect(await lock.unlock()).toBe("released");
    const next = await theirs.lock("a", held);
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    await next.unlock();
  });

  test("three of five: a holder loses its lock no later than it expires, and learns of the loss", async () => {
    const lock = await own.locks().lock("b", { ttl: 4_000, wait: LONG });
    await own.signal("SIGKILL", 0);
    await until(() => lock.signal.aborted);
    expect(lock.signal.reason).toBeInstanceOf(LockLostError);
    expect(lock.signal.reason).toMatchObject({ why: "expired" });
  });

  test("three of five: claims and reads fail at once, and nothing is left behind", async () => {
    stopTimers(ATTEMPT);
    const taking = own.locks().lock("c", waiting);
    await expect(taking).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringMatching(
        /it takes 3 of 5 masters, and 3 failed: redis at .*ECONNREFUSED/,
      ),
    });
    expect(await own.owners("c", [2, 4])).toEqual([undefined, undefined]);
    const reading = own.locks().inspect("c");
    await expect(reading).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  });
});

describe("masters that are frozen", () => {
  let own: OwnMasters;

  beforeAll(async () => {
    own = await OwnMasters.start();
  });

  afterAll(() => own[Symbol.asyncDispose]());

  const isFree = (name: string) => async () =>
    (await own.owners(name)).every((owner) => owner === undefined);

  test("two of five: the others decide without them, and the missed requests do not affect other clients", async () => {
    const [ours, theirs] = [own.locks(), own.locks()];
    await Promise.all([ours.inspect("a"), theirs.inspect("a")]);
    await own.signal("SIGSTOP", 0, 4);
    const startTimers = stopTimers(ATTEMPT);
    const lock = await ours.lock("a", held);
    await lock.ensure(2 * LONG);
    startTimers();
    expect(await theirs.tryLock("a", held)).toBeUndefined();
    expect(await lock.unlock()).toBe("released");
    const rounds = async (client: typeof ours) => {
      for (let i = 0; i < 5; i += 1) await (await client.lock("b", waiting)).unlock();
    };
    await Promise.all([rounds(ours), rounds(theirs)]);
    await own.signal("SIGCONT", 0, 4);
    await until(isFree("a"));
    await until(isFree("b"));
  });

  test("three of five: a claim has an unknown outcome, and nothing is left behind when they continue", async () => {
    const locks = own.locks();
    await locks.inspect("c");
    await own.signal("SIGSTOP", 0, 1, 2);
    await expect(locks.lock("c", { ttl: 3_000, wait: 0 })).rejects.toMatchObject({
      code: "UNKNOWN_OUTCOME",
    });
    expect(await own.owners("c", [3, 4])).toEqual([undefined, undefined]);
    await own.signal("SIGCONT", 0, 1, 2);
    await until(isFree("c"));
    await (await own.locks().lock("c", waiting)).unlock();
  });
});

test.concurrent('frozen masters do not keep "lockstep lock" from exiting', async () => {
  await using own = await OwnMasters.start();
  const url = `redlock://${own.ports.map((port) => `127.0.0.1:${port}`).join(",")}`;
  const command = ["sh", "-c", "echo started; sleep 60"];
  using holder = runCli("lock", "a", "--store", url, "--ttl", "9s", "--", ...command);
  expect(await holder.line()).toBe("started");
  await own.signal("SIGSTOP", 0, 1, 2, 3, 4);
  expect(await holder.ended).toBe(76);
});

describe("masters that keep all writes", () => {
  let own: OwnMasters;

  beforeAll(async () => {
    own = await OwnMasters.start({ args: DURABLE });
  });

  afterAll(() => own[Symbol.asyncDispose]());

  test("issue rising fences over 300 hand-overs, while two of them at a time are killed and restarted", async () => {
    for (const master of own.ports.keys()) {
      await own.call(master, "SET", own.key("fence", "a"), String(ABOVE_CLOCKS));
    }
    const clients = [own.locks(), own.locks()] as const;
    const dead: number[] = [];
    const kills = new Set<number>();
    let last: Fence | undefined;
    for (let i = 0; i < 300; i += 1) {
      if (i % 4 === 0) {
        if (dead.length === 2) await own.node(dead.shift() ?? 0).start();
        const alive = [0, 1, 2, 3, 4].filter((master) => !dead.includes(master));
        const victim = alive[Math.floor(Math.random() * alive.length)] ?? 0;
        await own.signal("SIGKILL", victim);
        dead.push(victim);
        kills.add(victim);
      }
      const lock = await clients[i % 2 === 0 ? 0 : 1].lock("a", waiting);
      if (last) expect(compareFence(last, lock.fence), `${last} ${lock.fence}`).toBe(-1);
      last = lock.fence;
      await lock.unlock();
    }
    expect(kills.size).toBe(5);
    await Promise.all(dead.map((master) => own.node(master).start()));
  });

  test("keep a lock while they restart one after the other", async () => {
    const [ours, theirs] = [own.locks(), own.locks()];
    const lock = await ours.lock("b", held);
    await until(async () => (await own.owners("b")).every((owner) => owner !== undefined));
    for (const master of own.ports.keys()) {
      await own.signal("SIGKILL", master);
      expect(await theirs.tryLock("b", held)).toBeUndefined();
      await own.node(master).start();
    }
    lock.assertHeld();
    await lock.ensure(2 * LONG);
    expect(await theirs.tryLock("b", held)).toBeUndefined();
    expect(await lock.unlock()).toBe("released");
    await until(async () => (await own.owners("b")).every((owner) => owner === undefined));
  });
});

test("masters that accept connections and never answer are not waited for", async () => {
  await using shared = Masters.shared();
  const wires = await Promise.all(shared.ports.map((port) => TcpProxy.to(port)));
  for (const wire of wires.slice(0, 2)) wire.cut();
  const locks = shared.locks(wires.map(({ port }) => port));
  stopTimers(ATTEMPT);
  for (let i = 0; i < 2; i += 1) await (await locks.lock("a", held)).unlock();
  await Promise.all(wires.map((wire) => wire.close()));
});

describe.concurrent("less than a quorum", () => {
  test("is released on all masters before the call ends, with and without a lost answer", async () => {
    await using shared = Masters.shared();
    await using wire = await TcpProxy.to(shared.ports[4] ?? 0);
    const locks = shared.locks([...shared.ports.slice(0, 4), wire.port]);
    for (const master of [0, 1, 2]) await shared.occupy(master, "a", LONG);
    expect(await locks.tryLock("a", held)).toBeUndefined();
    expect(await shared.owners("a", [3, 4])).toEqual([undefined, undefined]);
    await shared.call(2, "DEL", shared.key("lock", "a"));
    await shared.occupy(3, "a", LONG);
    wire.loseNextAnswer();
    expect(await locks.tryLock("a", held)).toBeUndefined();
    expect(await shared.owners("a", [2, 4])).toEqual([undefined, undefined]);
  });

  test("that is dropped late does not affect a later lock of the same caller", async () => {
    await using shared = Masters.shared();
    await using wire = await TcpProxy.to(shared.ports[4] ?? 0);
    const locks = shared.locks([...shared.ports.slice(0, 4), wire.port]);
    const first = await locks.lock("a", held);
    await until(async () => (await shared.owners("a", [4]))[0] !== undefined);
    await first.unlock();
    await until(async () => (await shared.owners("a")).every((owner) => owner === undefined));
    for (const master of [0, 1, 2]) await shared.occupy(master, "a", LONG);
    // The claim arrives, and its withdrawal is delayed.
    wire.delayNextRequest(1);
    const taking = locks.lock("a", waiting);
    await until(() => !wire.isToLose);
    // Simulates their expiry.
    for (const master of [2, 4]) await shared.call(master, "DEL", shared.key("lock", "a"));
    const lock = await taking;
    const before = await shared.owners("a", [2, 3, 4]);
    expect(new Set(before).size).toBe(1);
    expect(wire.deliver()).toBe(true);
    await pause(200);
    expect(await shared.owners("a", [2, 3, 4])).toEqual(before);
    for (const master of [0, 1]) await shared.call(master, "DEL", shared.key("lock", "a"));
    expect(await shared.locks().tryLock("a", held)).toBeUndefined();
    lock.assertHeld();
    expect(await lock.unlock()).toBe("released");
  });

  test("of refusals rejects as a refusal", async () => {
    await using shared = Masters.shared();
    const spoilt = shared.key("fence", "a");
    for (const master of [0, 1, 2]) await shared.call(master, "SET", spoilt, "no number");
    const taking = shared.locks().lock("a", waiting);
    await expect(taking).rejects.toMatchObject({ code: "STORE_REFUSED" });
    expect(await shared.owners("a", [3, 4])).toEqual([undefined, undefined]);
  });
});

describe.concurrent.each(["claim", "renewal", "release"])("one lost answer among five", (which) => {
  test(`to a ${which} has no effect`, async () => {
    await using shared = Masters.shared();
    await using wire = await TcpProxy.to(shared.ports[0] ?? 0);
    const locks = shared.locks([wire.port, ...shared.ports.slice(1)]);
    // Connects first, so that the lost answer is not that of a handshake.
    const first = await locks.lock("a", held);
    await until(async () => (await shared.owners("a", [0]))[0] !== undefined);
    await first.unlock();
    if (which === "claim") wire.loseNextAnswer();
    const lock = await locks.lock("a", held);
    if (which === "renewal") wire.loseNextAnswer();
    await lock.ensure(2 * LONG);
    if (which === "release") wire.loseNextAnswer();
    expect(await lock.unlock()).toBe("released");
    await until(async () => (await shared.owners("a")).every((owner) => owner === undefined));
  });
});

describe.concurrent.each([2, 4])("an even number of masters (%i)", (count) => {
  test("that is split between two dead clients is free when they expire", async () => {
    await using shared = Masters.shared(count);
    for (let i = 0; i < count; i += 1) {
      await shared.occupy(i, "a", 10_000, i < count / 2 ? "one" : "the other");
    }
    expect(await shared.locks().tryLock("a", held)).toBeUndefined();
    expect((await shared.locks().inspect("a")).holder).toBeUndefined();
    const lock = await shared.locks().lock("a", waiting);
    expect(await lock.unlock()).toBe("released");
  });

  test("settles among concurrent clients, and loses no update", async () => {
    await using shared = Masters.shared(count);
    const { file, remove } = await temporaryFile();
    await writeFile(file, "0");
    const round = { name: "a", file, contenders: 1, rounds: 25 };
    await Promise.all([1, 2, 3, 4].map(() => contend(shared.locks(), round)));
    expect(await readFile(file, "utf8")).toBe("100");
    await remove();
  });
});

describe.concurrent("fences rise", () => {
  test("across every pair of quorums, from masters with different tokens", async () => {
    await using shared = Masters.shared();
    const starts = [0n, 1n, 1_000n, 10n ** 18n, 5n].map((n) => ABOVE_CLOCKS + n);
    for (const [master, start] of starts.entries()) {
      await shared.call(master, "SET", shared.key("fence", "a"), String(start));
    }
    // A generation that only this master has.
    await shared.call(3, "SET", `{${shared.prefix}}generation`, "7");
    const quorums = shuffled([...subsets(5, 3), ...subsets(5, 3), ...subsets(5, 3)]);
    let last: Fence | undefined;
    for (const quorum of quorums) {
      const locks = await shared.locksOn(quorum);
      const lock = await locks.lock("a", { ttl: LONG, wait: LONG });
      if (last) expect(compareFence(last, lock.fence), `${last} ${lock.fence}`).toBe(-1);
      last = lock.fence;
      expect((await locks.inspect("a")).fence).toBe(String(last));
      expect(await lock.unlock()).toBe("released");
    }
    expect(last?.generation).toBe(7);
    expect(last?.token).toBeGreaterThan(ABOVE_CLOCKS + 10n ** 18n);
  });

  test("to a generation that was raised on a quorum, with any later quorum", async () => {
    await using shared = Masters.shared();
    const raised = await (await shared.locksOn([0, 1, 2])).raiseGeneration(5);
    expect(raised).toBe(5);
    for (const quorum of subsets(5, 3)) {
      const locks = await shared.locksOn(quorum);
      const lock = await locks.lock("a", held);
      expect(lock.fence.generation).toBe(5);
      await lock.unlock();
    }
    expect(await (await shared.locksOn([2, 3, 4])).raiseGeneration()).toBe(6);
    expect(await (await shared.locksOn([0, 1, 4])).raiseGeneration()).toBe(7);
    const few = await shared.locksOn([0, 1]);
    await expect(few.raiseGeneration()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test("to the generation that a client has seen, from masters that have lost it", async () => {
    await using shared = Masters.shared();
    const locks = shared.locks();
    expect(await shared.locks().raiseGeneration(5)).toBe(5);
    expect((await locks.inspect("a")).fence).toBeUndefined();
    const forget = () =>
      Promise.all(
        [...shared.ports.keys()].map((i) => shared.call(i, "DEL", `{${shared.prefix}}generation`)),
      );
    await forget();
    const lock = await locks.lock("a", held);
    expect(lock.fence.generation).toBe(5);
    await lock.unlock();
    await forget();
    expect(await locks.raiseGeneration()).toBe(6);
  });

  test("when one master alone has a higher generation, and all have equal tokens", async () => {
    await using shared = Masters.shared();
    for (const master of shared.ports.keys()) {
      await shared.call(master, "SET", shared.key("fence", "a"), String(ABOVE_CLOCKS));
    }
    await shared.call(3, "SET", `{${shared.prefix}}generation`, "7");
    const before = await (await shared.locksOn([2, 3, 4])).lock("a", held);
    await before.unlock();
    const after = await (await shared.locksOn([0, 1, 2])).lock("a", held);
    expect(before.fence.generation).toBe(7);
    expect(compareFence(before.fence, after.fence)).toBe(-1);
  });

  test.each(["refused", "request-lost"] as const)(
    "and no lock is had whose token a quorum has not counted up to: the lift is %s",
    async (fault) => {
      await using shared = Masters.shared();
      for (const master of shared.ports.keys()) {
        const start = String(ABOVE_CLOCKS + BigInt(master));
        await shared.call(master, "SET", shared.key("fence", "a"), start);
      }
      const decide = (_: number, script: Script) => (script === RAISE_TOKENS ? fault : undefined);
      const masters = shared.ports.map((port) => faulty(openLocal({ port }), decide));
      await using locks = redlockLocks(masters, { prefix: shared.prefix, closeMasters: true });
      expect((await locks.tryLock("a", held))?.fence).toBeUndefined();
      await until(async () => (await shared.owners("a")).every((owner) => owner === undefined));
    },
  );

  test("by the tokens of masters that still have the lock, and of no others", async () => {
    await using shared = Masters.shared();
    await shared.call(0, "SET", shared.key("fence", "a"), "5");
    await shared.occupy(0, "a", LONG, "another");
    const redis = openLocal({ port: shared.ports[0] ?? 0 });
    const keys = [
      shared.key("lock", "a"),
      shared.key("fence", "a"),
      `{${shared.prefix}}generation`,
    ];
    const lift = (owner: string) => redis.run(RAISE_TOKENS, { keys, args: [owner, 2, "9"] });
    expect(await lift("one")).toBe("0");
    expect(await redis.call(["MGET", ...keys])).toEqual(["another", "5", undefined]);
    expect(await lift("another")).toBe("1");
    expect(await redis.call(["MGET", ...keys])).toEqual(["another", "9", "2"]);
    await redis.close();
  });
});

test.concurrent("a master that is named twice is rejected, and so is an empty list", async () => {
  await using shared = Masters.shared();
  const port = await freePort();
  expect(() => shared.locks([port, port])).toThrow(RangeError);
  expect(() => shared.locks([])).toThrow(RangeError);
});

/** Returns all combinations of `size` numbers below `count`. */
function subsets(count: number, size: number): readonly (readonly number[])[] {
  const all = Array.from({ length: 2 ** count }, (_, bits) =>
    Array.from({ length: count }, (_, i) => i).filter((i) => (bits >> i) & 1),
  );
  return all.filter(({ length }) => length === size);
}

function shuffled<T>(all: readonly T[]): readonly T[] {
  return all
    .map((each) => [Math.random(), each] as const)
    .sort(([a], [b]) => a - b)
    .map(([, each]) => each);
}
