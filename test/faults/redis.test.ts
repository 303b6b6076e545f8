import { describe, expect, test } from "vitest";
import { compareFence } from "../../core/lock/fence.ts";
import type { Redis } from "../../core/redis/redis.ts";
import { FAULTS, faulty, LATE } from "../support/faulty-redis.ts";
import { callsOf, OwnRedis } from "../support/own-redis.ts";
import { runScript } from "../support/script.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { pause, until, within } from "../support/until.ts";

/** A ttl that no pause of a busy machine outlasts. */
const LONG = 20_000;

/** What is told takes milliseconds; who is not told looks after two seconds at the latest. */
const SOON = 6_000;

const held = { ttl: LONG, wait: 0 };
const waiting = { ttl: LONG, wait: LONG };

describe.concurrent.each(FAULTS)("a script of which the fate is: %s", (fault) => {
  test("a claim holds, or leaves nothing behind", async () => {
    await using own = await OwnRedis.start();
    const redis = faulty(own.client(), (n) => (n === 1 ? fault : undefined));
    const taking = own.locks({ redis }).lock("a", held);
    if (fault === "refused") {
      await expect(taking).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    } else {
      const lock = await taking;
      await pause(fault === "late" ? 2 * LATE : 0);
      expect(await own.locks().tryLock("a", held)).toBeUndefined();
      expect(await lock.unlock()).toBe("released");
    }
    expect(await own.client().call(["EXISTS", "{lockstep}lock:a"])).toBe("0");
  });

  test("a renewal keeps the lock, and brings none back that was released", async () => {
    await using own = await OwnRedis.start();
    const redis = faulty(own.client(), (n) => (n === 2 ? fault : undefined));
    const lock = await own.locks({ redis }).lock("a", { ttl: 5_000, wait: 0, renew: false });
    const code = fault === "refused" ? "STORE_UNAVAILABLE" : "UNKNOWN_OUTCOME";
    await expect(lock.ensure(LONG)).rejects.toMatchObject({ code });
    lock.assertHeld();
    await lock.ensure(LONG);
    expect(await lock.unlock()).toBe("released");
    await pause(fault === "late" ? 2 * LATE : 0);
    expect(await own.client().call(["EXISTS", "{lockstep}lock:a"])).toBe("0");
  });

  test("a release is repeated, and harms nobody who comes after it", async () => {
    await using own = await OwnRedis.start();
    const redis = faulty(own.client(), (n) => (n === 2 ? fault : undefined));
    const lock = await own.locks({ redis }).lock("a", held);
    expect(await lock.unlock()).toBe("released");
    const next = await own.locks().lock("a", held);
    await pause(fault === "late" ? 2 * LATE : 0);
    expect(await own.locks().tryLock("a", held)).toBeUndefined();
    expect(await next.unlock()).toBe("released");
  });
});

describe.concurrent("a Redis server", () => {
  test("that is killed and comes back without its data gives higher fences all the same", async () => {
    await using own = await OwnRedis.start();
    const [ours, theirs] = [own.locks(), own.locks()];
    const lock = await ours.lock("a", { ttl: 3_000, wait: 0 });
    const next = theirs.lock("a", waiting);
    await until(() => waiters(own, "a", 1));
    await own.restart();
    const second = await within(SOON, next);
    expect(compareFence(lock.fence, second.fence)).toBe(-1);
    await until(() => lock.signal.aborted);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "taken" });
    expect(await lock.unlock()).toBe("was-lost");
    second.assertHeld();
    expect(await second.unlock()).toBe("released");
  });

  test("that is frozen for longer than a ttl leaves no holder in the belief that it holds", async () => {
    await using own = await OwnRedis.start();
    const lock = await own.locks().lock("a", { ttl: 1_000, wait: 0 });
    await own.node.kill("SIGSTOP");
    await pause(1_500);
    expect(lock.signal.aborted).toBe(true);
    await own.node.kill("SIGCONT");
    const next = await own.locks().lock("a", waiting);
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
  });

  test("that pauses its clients for less than a ttl loses nothing", async () => {
    await using own = await OwnRedis.start();
    const lock = await own.locks().lock("a", { ttl: 3_000, wait: 0 });
    const next = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 1));
    await own.client().call(["CLIENT", "PAUSE", 1_500, "ALL"]);
    await pause(2_000);
    lock.assertHeld();
    expect(await lock.unlock()).toBe("released");
    await (await within(SOON, next)).unlock();
  });

  test("whose memory is used up gives no lock, and takes one back", async () => {
    await using own = await OwnRedis.start();
    const locks = own.locks();
    const lock = await locks.lock("a", held);
    await own.client().call(["CONFIG", "SET", "maxmemory", "1"]);
    const refused = { code: "STORE_UNAVAILABLE", message: expect.stringContaining("memory") };
    await expect(locks.lock("b", held)).rejects.toMatchObject(refused);
    expect(await own.client().call(["EXISTS", "{lockstep}lock:b"])).toBe("0");
    await lock.ensure(2 * LONG);
    expect(await lock.unlock()).toBe("released");
  });

  test("of a cluster runs all scripts, and has all keys of a store in one slot", async () => {
    await using own = await OwnRedis.start("redis", ["--cluster-enabled", "yes"]);
    const redis = own.client();
    await redis.call(["CLUSTER", "ADDSLOTSRANGE", 0, 16_383]);
    await until(async () =>
      String(await redis.call(["CLUSTER", "INFO"])).includes("cluster_state:ok"),
    );
    const [ours, theirs] = [own.locks(), own.locks()];
    const lock = await ours.lock("a}b{c", held);
    const both = theirs.lockAll(["a}b{c", "{d}"], waiting);
    await until(() => waiters(own, "a}b{c", 1));
    expect(await lock.unlock()).toBe("released");
    const set = await within(SOON, both);
    await set.ensure(2 * LONG);
    expect((await ours.list("a")).map(({ name }) => name)).toEqual(["a}b{c"]);
    expect(await ours.raiseGeneration()).toBe(1);
    expect(await set.unlock()).toBe("released");
    const slots = new Set<unknown>();
    for (const key of (await redis.call(["KEYS", "*"])) as readonly string[]) {
      slots.add(await redis.call(["CLUSTER", "KEYSLOT", key]));
    }
    expect(slots.size).toBe(1);
  });
});

describe.concurrent("a plain SET NX PX by somebody else", () => {
  test("keeps a lock from us as ours does from them, and shows its holder", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const locks = own.locks({ label: "ours" });
    const set = (owner: string) =>
      redis.call(["SET", "{lockstep}lock:a", owner, "NX", "PX", 1_000]);
    expect(await set("theirs")).toBe("OK");
    expect(await locks.tryLock("a", held)).toBeUndefined();
    expect((await locks.inspect("a")).holder).toBe("theirs");
    const lock = await within(SOON, locks.lock("a", waiting));
    expect(await redis.call(["GET", "{lockstep}lock:a"])).toMatch(/^ours\//);
    expect(await set("theirs")).toBeUndefined();
    await lock.unlock();
    await redis.call(["SET", "{lockstep}lock:a", "for ever"]);
    await expect(locks.lock("a", { ttl: LONG, wait: 100 })).rejects.toMatchObject({
      code: "LOCK_TIMEOUT",
    });
    expect(await locks.inspect("a")).toMatchObject({ holder: "for ever", expiresIn: undefined });
  });
});

describe.concurrent("waiters", () => {
  test("are called one per release, in the order in which they came", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const lock = await own.locks().lock("a", held);
    const COUNT = 50;
    const order: number[] = [];
    const all: Promise<void>[] = [];
    for (let place = 0; place < COUNT; place += 1) {
      const wait = async () => {
        const next = await own.locks().lock("a", { ttl: LONG, wait: 60_000 });
        order.push(place);
        await next.unlock();
      };
      all.push(wait());
      await until(() => waiters(own, "a", place + 1));
    }
    expect(await callsOf(redis, "publish")).toBe(0);
    const before = await callsOf(redis, "evalsha");
    await lock.unlock();
    await Promise.all(all);
    expect(order).toEqual(Array.from({ length: COUNT }, (_, place) => place));
    expect(await callsOf(redis, "publish")).toBe(COUNT);
    // A claim and a release each, and a few looks of who waited for longer; a herd would be 50 claims per release.
    expect((await callsOf(redis, "evalsha")) - before).toBeLessThan(6 * COUNT);
    expect(await redis.call(["EXISTS", "{lockstep}wait:a"])).toBe("0");
  });

  test("that are dead are skipped", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const lock = await own.locks().lock("a", held);
    using dead = runScript("hold", own.url, "a", String(LONG));
    await until(() => waiters(own, "a", 1));
    const next = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 2));
    dead.child.kill("SIGKILL");
    await dead.ended;
    await until(async () => (await subscribers(redis)) === 1);
    await lock.unlock();
    await (await within(SOON, next)).unlock();
    // The dead one and the living one by the first release; nobody is left for the second.
    expect(await callsOf(redis, "publish")).toBe(2);
  });

  test("that are frozen cost the next one a look, and come back to their place", async () => {
    await using own = await OwnRedis.start();
    const lock = await own.locks().lock("a", held);
    using frozen = runScript("hold", own.url, "a", "1000");
    await until(() => waiters(own, "a", 1));
    const next = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 2));
    frozen.child.kill("SIGSTOP");
    await lock.unlock();
    const second = await within(SOON, next);
    const last = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 1));
    frozen.child.kill("SIGCONT");
    await until(() => waiters(own, "a", 2));
    await second.unlock();
    const fence = await frozen.line();
    frozen.child.kill("SIGKILL");
    expect(fence < String((await within(SOON, last)).fence)).toBe(true);
  });

  test("that hear nothing, or may not be called, get the lock all the same", async () => {
    await using own = await OwnRedis.start();
    const admin = own.client();
    await admin.call(["ACL", "SETUSER", "mute", "on", ">word", "~*", "+@all", "resetchannels"]);
    const mute = { user: "mute", password: "word" };
    const [ours, theirs] = [mute, mute].map((login) => own.locks({ redis: own.client(login) }));
    const lock = await ours?.lock("a", held);
    const next = theirs?.lock("a", waiting);
    const deaf = own.locks({ redis: deafened(own.client()) }).lock("a", waiting);
    await until(() => waiters(own, "a", 2));
    expect(await lock?.unlock()).toBe("released");
    const turns = [next, deaf].map(async (each) => (await each)?.unlock());
    expect(await within(2 * SOON, Promise.all(turns))).toEqual(["released", "released"]);
  });

  test("whose connection is cut look as soon as they hear again", async () => {
    await using own = await OwnRedis.start();
    const admin = own.client();
    const lock = await own.locks().lock("a", held);
    const next = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 1));
    await admin.call(["CLIENT", "KILL", "TYPE", "pubsub"]);
    await lock.unlock();
    await (await within(SOON, next)).unlock();
  });

  test("who give up leave the line", async () => {
    await using own = await OwnRedis.start();
    const lock = await own.locks().lock("a", held);
    const caller = new AbortController();
    const first = own.locks().lock("a", { ...waiting, signal: caller.signal });
    const outcome = expect(first).rejects.toBe("enough");
    await until(() => waiters(own, "a", 1));
    const second = own.locks().lock("a", { ttl: LONG, wait: 200 });
    await expect(second).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    expect(await waiters(own, "a", 1)).toBe(true);
    caller.abort("enough");
    await outcome;
    expect(await waiters(own, "a", 0)).toBe(true);
    await lock.unlock();
  });

  test("who give up when their turn has come pass it on", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const lock = await own.locks().lock("a", held);
    const caller = new AbortController();
    const deaf = own.locks({ redis: deafened(own.client()) });
    const first = deaf.lock("a", { ...waiting, signal: caller.signal });
    const outcome = expect(first).rejects.toBe("enough");
    await until(() => waiters(own, "a", 1));
    const [id = ""] = (await redis.call(["ZRANGE", "{lockstep}wait:a", 0, 0])) as readonly string[];
    // Somebody hears it in its place.
    const heard = Promise.withResolvers<string>();
    const channel = `{lockstep}wake:${id.slice(0, 36)}`;
    redis.subscribe(channel, { ready() {}, message: heard.resolve });
    const next = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 2));
    await until(async () => (await subscribers(redis)) === 2);
    await lock.unlock();
    expect(await heard.promise).toBe(id);
    caller.abort("enough");
    await outcome;
    await (await within(SOON, next)).unlock();
    expect(await callsOf(redis, "publish")).toBe(2);
  });

  test("have half a second to come, in which nobody else gets the lock", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const lock = await own.locks().lock("a", held);
    await redis.call(["ZADD", "{lockstep}wait:a", 1, `${"x".repeat(36)}/somebody`]);
    const stop = redis.subscribe(`{lockstep}wake:${"x".repeat(36)}`, { ready() {}, message() {} });
    await until(async () => (await subscribers(redis)) === 1);
    await lock.unlock();
    expect(await own.locks().tryLock("a", held)).toBeUndefined();
    await (await within(SOON, own.locks().lock("a", waiting))).unlock();
    stop();
  });

  test("for several names leave what they cannot use to others", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const [a, b] = [await own.locks().lock("a", held), await own.locks().lock("b", held)];
    const both = own.locks().lockAll(["a", "b"], waiting);
    await until(() => waiters(own, "a", 1));
    const single = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 2));
    await a.unlock();
    await (await within(SOON, single)).unlock();
    expect(await waiters(own, "b", 1)).toBe(true);
    // Two for one release: the first in line could not use it, and passed it on.
    expect(await callsOf(redis, "publish")).toBe(2);
    await b.unlock();
    await (await within(SOON, both)).unlock();
  });
});

describe.concurrent("a replica", () => {
  test("that does not answer keeps a lock that needs it from being taken, and not another one", async () => {
    await using own = await OwnRedis.start("redis-replica");
    const safe = own.locks({ replicas: 1, replicaTimeout: 500 });
    const taken = () => until(() => safe.tryLock("a", held).catch(() => undefined));
    const lock = await taken();
    await lock.ensure(2 * LONG);
    await own.replica.kill("SIGSTOP");
    const failure = { code: "UNKNOWN_OUTCOME", message: expect.stringContaining("1 replicas") };
    await expect(lock.ensure(3 * LONG)).rejects.toMatchObject(failure);
    expect(await lock.unlock()).toBe("released");
    await expect(safe.lock("a", held)).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      cause: failure,
    });
    expect(await own.client().call(["EXISTS", "{lockstep}lock:a"])).toBe("0");
    const other = await own.locks().lock("a", held);
    expect(await other.unlock()).toBe("released");
    await own.replica.kill("SIGCONT");
    expect(await (await taken()).unlock()).toBe("released");
  });

  test("that is promoted without the last lock gives it to a second holder, whose fence is higher", async () => {
    await using own = await OwnRedis.start("redis-replica");
    await using wire = await TcpProxy.to(own.port);
    const redis = own.client({ port: own.replica.place.port });
    await redis.call(["REPLICAOF", "127.0.0.1", wire.port]);
    await until(async () => (await redis.call(["ROLE"]))?.[3] === "connected");
    wire.cut();
    const lock = await own.locks().lock("a", { ttl: 3_000, wait: 0 });
    await own.node.kill("SIGKILL");
    await redis.call(["REPLICAOF", "NO", "ONE"]);
    const second = await own.locks({ redis }).lock("a", held);
    lock.assertHeld();
    second.assertHeld();
    expect(compareFence(lock.fence, second.fence)).toBe(-1);
  });
});

/** Whether so many stand in line for a lock at the server. */
async function waiters(own: OwnRedis, name: string, count: number): Promise<boolean> {
  const admin = own.client();
  const standing = await admin.call(["ZCARD", `{lockstep}wait:${name}`]);
  await admin.close();
  return Number(standing) === count;
}

async function subscribers(redis: Redis): Promise<number> {
  const channels = await redis.call(["PUBSUB", "CHANNELS"]);
  return (channels as readonly string[]).length;
}

/** A client that believes to listen, and hears nothing. */
function deafened(redis: Redis): Redis {
  return {
    address: redis.address,
    run: redis.run.bind(redis),
    runOnReplicas: redis.runOnReplicas.bind(redis),
    call: redis.call.bind(redis),
    close: redis.close.bind(redis),
    [Symbol.asyncDispose]: redis.close.bind(redis),
    subscribe: (_, { ready }) => {
      ready();
      return () => {};
    },
  };
}
