import { describe, expect, test } from "vitest";
import { stockLock } from "../../core/inventory/inventory.ts";
import { compareFence } from "../../core/lock/fence.ts";
import { type Redis, script } from "../../core/stores/redis/client/redis.ts";
import { redisInventory } from "../../core/stores/redis/inventory/index.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { describeEmptyRestart } from "../conformance/empty-restart.ts";
import { FAULTS, faulty } from "../support/faulty-redis.ts";
import { sqliteInventory } from "../support/inventory-under-test.ts";
import { callsOf, OwnRedis } from "../support/own-redis.ts";
import { runCli, runScript } from "../support/script.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { pause, until, within } from "../support/until.ts";

/** A ttl that no pause of a busy machine outlasts. */
const LONG = 20_000;

const held = { ttl: LONG, wait: LONG };
const waiting = { ttl: LONG, wait: LONG };

describeEmptyRestart("redis", () => OwnRedis.start());

describe.concurrent.each(FAULTS)('a script with the fault "%s"', (fault) => {
  test("a claim holds the lock, or leaves nothing behind", async () => {
    await using own = await OwnRedis.start();
    const redis = faulty(own.client(), (n) => (n === 1 ? fault : undefined));
    const taking = own.locks({ redis }).lock("a", held);
    if (fault === "refused") {
      await expect(taking).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    } else {
      const lock = await taking;
      await redis.deliver();
      expect(await own.locks().tryLock("a", held)).toBeUndefined();
      expect(await lock.unlock()).toBe("released");
    }
    expect(await own.client().call(["EXISTS", "{lockstep}lock:a"])).toBe("0");
  });

  test("a renewal keeps the lock, and never restores a released lock", async () => {
    await using own = await OwnRedis.start();
    const redis = faulty(own.client(), (n) => (n === 2 ? fault : undefined));
    const lock = await own.locks({ redis }).lock("a", { ...held, renew: false });
    const code = fault === "refused" ? "STORE_UNAVAILABLE" : "UNKNOWN_OUTCOME";
    await expect(lock.ensure(2 * LONG)).rejects.toMatchObject({ code });
    lock.assertHeld();
    await lock.ensure(2 * LONG);
    expect(await lock.unlock()).toBe("released");
    await redis.deliver();
    expect(await own.client().call(["EXISTS", "{lockstep}lock:a"])).toBe("0");
  });

  test("a release is repeated, and does not affect the next holder", async () => {
    await using own = await OwnRedis.start();
    const redis = faulty(own.client(), (n) => (n === 2 ? fault : undefined));
    const lock = await own.locks({ redis }).lock("a", held);
    expect(await lock.unlock()).toBe("released");
    const next = await own.locks().lock("a", held);
    await redis.deliver();
    expect(await own.locks().tryLock("a", held)).toBeUndefined();
    expect(await next.unlock()).toBe("released");
  });
});

describe.concurrent("a Redis server", () => {
  test("that is killed and restarts without its data still issues higher fences", async () => {
    await using own = await OwnRedis.start();
    const [ours, theirs] = [own.locks(), own.locks()];
    const lock = await ours.lock("a", held);
    const next = theirs.lock("a", waiting);
    await until(() => waiters(own, "a", 1));
    await own.restart();
    const second = await next;
    expect(compareFence(lock.fence, second.fence)).toBe(-1);
    await until(() => lock.signal.aborted);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "taken" });
    expect(await lock.unlock()).toBe("was-lost");
    second.assertHeld();
    expect(await second.unlock()).toBe("released");
  });

  test("that restarts without its data gives new clients the generation that an operator sets", async () => {
    await using own = await OwnRedis.start();
    expect(await own.locks().raiseGeneration(3)).toBe(3);
    await own.restart();
    const raising = runCli("raise-generation", "--at-least", "4", "--store", own.url);
    expect(await raising.line()).toBe("generation 4");
    expect(await raising.ended).toBe(0);
    expect((await own.locks().lock("a", held)).fence.generation).toBe(4);
  });

  test("that restarts without its generation makes the stock refuse, with the command that repairs it", async () => {
    await using own = await OwnRedis.start();
    const stock = await sqliteInventory();
    const { inventory, locks } = stock.open();
    const sell = async () => {
      const lock = await own.locks().lock(stockLock("teapot"), held);
      const { fence } = lock;
      const order = { sku: "teapot", quantity: 1, operationId: String(fence), fence };
      await inventory.decrement(order).finally(() => lock.unlock());
    };
    await inventory.set({ sku: "teapot", quantity: 5, operationId: "first" });
    expect(await own.locks().raiseGeneration(3)).toBe(3);
    await sell();
    await own.restart();
    const refused: unknown = await sell().catch((error) => error);
    expect(refused).toMatchObject({ code: "FENCED_OUT" });
    const [command = ""] = /raise-generation [^"]*/.exec(String(refused)) ?? [];
    expect(command).toBe("raise-generation --at-least 4");
    expect(await runCli(...command.split(" "), "--store", own.url).ended).toBe(0);
    await sell();
    expect(await inventory.get("teapot")).toMatchObject({ onHand: 3 });
    await locks.close();
    await stock.close();
  });

  test("that is frozen for longer than a ttl leaves no holder that believes to hold", async () => {
    await using own = await OwnRedis.start();
    const lock = await own.locks().lock("a", { ttl: 4_000, wait: LONG });
    await own.node.kill("SIGSTOP");
    await until(() => lock.signal.aborted);
    await own.node.kill("SIGCONT");
    const next = await own.locks().lock("a", waiting);
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
  });

  test('that is frozen does not keep "lockstep lock" from exiting', async () => {
    await using own = await OwnRedis.start();
    const command = ["sh", "-c", "echo started; sleep 60"];
    using holder = runCli("lock", "a", "--store", own.url, "--ttl", "9s", "--", ...command);
    expect(await holder.line()).toBe("started");
    await own.node.kill("SIGSTOP");
    expect(await within(60_000, holder.ended)).toBe(76);
  });

  test("that pauses its clients for less than a ttl loses no lock", async () => {
    await using own = await OwnRedis.start();
    const lock = await own.locks().lock("a", { ttl: 9_000, wait: LONG });
    const next = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 1));
    // The renewal after a third of the ttl waits.
    await own.client().call(["CLIENT", "PAUSE", 4_000, "ALL"]);
    await pause(5_000);
    lock.assertHeld();
    expect(await lock.unlock()).toBe("released");
    await (await next).unlock();
  });

  test("without free memory grants no lock, and accepts a release", async () => {
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
    // The default bus port is the clients' port plus 10,000, which an outgoing connection may use.
    const bus = ["--cluster-port", String(await freePort())];
    await using own = await OwnRedis.start("redis", ["--cluster-enabled", "yes", ...bus]);
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
    const set = await both;
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

describe.concurrent("a plain SET NX PX of another program", () => {
  test("excludes our locks, is excluded by them, and is shown as the holder", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const locks = own.locks({ label: "ours" });
    const set = (owner: string) =>
      redis.call(["SET", "{lockstep}lock:a", owner, "NX", "PX", 10_000]);
    expect(await set("theirs")).toBe("OK");
    expect(await locks.tryLock("a", held)).toBeUndefined();
    expect((await locks.inspect("a")).holder).toBe("theirs");
    const lock = await locks.lock("a", waiting);
    expect(await redis.call(["GET", "{lockstep}lock:a"])).toMatch(/^ours\//);
    expect(await set("theirs")).toBeUndefined();
    await lock.unlock();
    await redis.call(["SET", "{lockstep}lock:a", "for ever"]);
    await expect(locks.lock("a", { ttl: LONG, wait: 2_000 })).rejects.toMatchObject({
      code: "LOCK_TIMEOUT",
    });
    expect(await locks.inspect("a")).toMatchObject({ holder: "for ever", expiresIn: undefined });
  });
});

describe.concurrent("waiters", () => {
  test("are woken one per release, in order of arrival", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const lock = await own.locks({ redis: patient(own.client()) }).lock("a", held);
    const COUNT = 50;
    const order: number[] = [];
    const all: Promise<void>[] = [];
    for (let place = 0; place < COUNT; place += 1) {
      const wait = async () => {
        const locks = own.locks({ redis: patient(own.client()) });
        const next = await locks.lock("a", { ttl: LONG, wait: 60_000 });
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
    // Each release wakes one waiter. The last one tells those who watch for releases that the lock is free.
    expect(await callsOf(redis, "publish")).toBe(COUNT + 1);
    // One claim and one release each, and the checks of longer waits; a herd would make COUNT claims per release.
    expect((await callsOf(redis, "evalsha")) - before).toBeLessThan((COUNT * COUNT) / 4);
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
    await (await next).unlock();
    // The first release notifies the dead waiter and the living one; the second one tells that the lock is free.
    expect(await callsOf(redis, "publish")).toBe(3);
  });

  test("that are frozen delay the next one by one check, and return to their place", async () => {
    await using own = await OwnRedis.start();
    const lock = await own.locks().lock("a", held);
    using frozen = runScript("hold", own.url, "a", "4000");
    await until(() => waiters(own, "a", 1));
    const next = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 2));
    frozen.child.kill("SIGSTOP");
    await lock.unlock();
    const second = await next;
    const last = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 1));
    frozen.child.kill("SIGCONT");
    await until(() => waiters(own, "a", 2));
    await second.unlock();
    const fence = await frozen.line();
    frozen.child.kill("SIGKILL");
    expect(fence < String((await last).fence)).toBe(true);
  });

  test("without a working subscription or channel permission still get the lock", async () => {
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
    expect(await Promise.all(turns)).toEqual(["released", "released"]);
  });

  test("whose connection is cut read the lock as soon as they are subscribed again", async () => {
    await using own = await OwnRedis.start();
    const admin = own.client();
    const lock = await own.locks().lock("a", held);
    const next = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 1));
    await admin.call(["CLIENT", "KILL", "TYPE", "pubsub"]);
    await lock.unlock();
    await (await next).unlock();
  });

  test("that give up leave the queue", async () => {
    await using own = await OwnRedis.start();
    const lock = await own.locks().lock("a", held);
    const caller = new AbortController();
    const first = own.locks().lock("a", { ...waiting, signal: caller.signal });
    const outcome = expect(first).rejects.toBe("enough");
    await until(() => waiters(own, "a", 1));
    const second = own.locks().lock("a", { ttl: LONG, wait: 2_000 });
    await expect(second).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
    expect(await waiters(own, "a", 1)).toBe(true);
    caller.abort("enough");
    await outcome;
    expect(await waiters(own, "a", 0)).toBe(true);
    await lock.unlock();
  });

  test("that give up on their turn pass it on", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const { lock, id, giveUp } = await holderAndDeafWaiter(own, redis);
    // Another client receives the message instead.
    const heard = Promise.withResolvers<string>();
    const channel = `{lockstep}wake:${id.slice(0, 36)}`;
    redis.subscribe(channel, { ready() {}, message: heard.resolve });
    const next = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 2));
    await until(async () => (await subscribers(redis)) === 2);
    await lock.unlock();
    expect(await heard.promise).toBe(id);
    await giveUp();
    await (await next).unlock();
    // To the waiter that gave up, to the next one, and that the lock is free.
    expect(await callsOf(redis, "publish")).toBe(3);
  });

  test("that give up on their turn when nobody else waits tell those that watch the lock", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const { lock, id, giveUp } = await holderAndDeafWaiter(own, redis);
    const heard: string[] = [];
    const channels = [id.slice(0, 36), "released/{lockstep}lock:a"];
    for (const channel of channels) {
      const message = () => void heard.push(channel);
      redis.subscribe(`{lockstep}wake:${channel}`, { ready() {}, message });
    }
    await until(async () => (await subscribers(redis)) === 2);
    await lock.unlock();
    await until(() => heard.length === 1);
    await giveUp();
    await until(() => heard.length === 2);
    expect(heard).toEqual(channels);
  });

  test("have a time for their turn, in which no other client gets the lock", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const lock = await own.locks({ redis: patient(own.client(), 10_000) }).lock("a", held);
    await redis.call(["ZADD", "{lockstep}wait:a", 1, `${"x".repeat(36)}/somebody`]);
    const stop = redis.subscribe(`{lockstep}wake:${"x".repeat(36)}`, { ready() {}, message() {} });
    await until(async () => (await subscribers(redis)) === 1);
    await lock.unlock();
    expect(await own.locks().tryLock("a", held)).toBeUndefined();
    await (await own.locks().lock("a", waiting)).unlock();
    stop();
  });

  test("for several names pass on turns that they cannot use", async () => {
    await using own = await OwnRedis.start();
    const redis = own.client();
    const locks = own.locks({ redis: patient(own.client()) });
    const [a, b] = [await locks.lock("a", held), await locks.lock("b", held)];
    const both = own.locks().lockAll(["a", "b"], waiting);
    await until(() => waiters(own, "a", 1));
    const single = own.locks().lock("a", waiting);
    await until(() => waiters(own, "a", 2));
    await a.unlock();
    await (await single).unlock();
    expect(await waiters(own, "b", 1)).toBe(true);
    // Two messages for one release: the first waiter could not use the turn, and passed it on. Then the lock is free.
    expect(await callsOf(redis, "publish")).toBe(3);
    await b.unlock();
    await (await both).unlock();
  });
});

test.concurrent("a user with all but administrative permissions takes, awaits and releases locks under a prefix", async () => {
  await using own = await OwnRedis.start();
  const rules = ["on", ">word", "~{lockstep}*", "&{lockstep}*", "+@all", "-@admin", "-@dangerous"];
  await own.client().call(["ACL", "SETUSER", "user", ...rules]);
  const [ours, theirs] = [1, 2].map(() =>
    own.locks({ redis: own.client({ user: "user", password: "word" }) }),
  );
  const lock = await ours?.lock("a", held);
  const next = theirs?.lock("a", waiting);
  await until(() => waiters(own, "a", 1));
  expect((await ours?.list())?.map(({ name }) => name)).toEqual(["a"]);
  await lock?.ensure(2 * LONG);
  expect(await lock?.unlock()).toBe("released");
  expect(await (await next)?.unlock()).toBe("released");
  // To the waiter, and that the lock is free.
  expect(await callsOf(own.client(), "publish")).toBe(2);
});

describe.concurrent("a user without permission for a command", () => {
  const withheld = async (own: OwnRedis, command: string) => {
    const rules = ["on", ">word", "~*", "&*", "+@all", `-${command}`];
    await own.client().call(["ACL", "SETUSER", command, ...rules]);
    return own.client({ user: command, password: "word" });
  };

  test("WAIT: a lock that needs replicas is refused, and nothing is left behind", async () => {
    await using own = await OwnRedis.start();
    const locks = own.locks({ redis: await withheld(own, "wait"), replicas: 1 });
    await expect(locks.lock("a", held)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(await own.client().call(["EXISTS", "{lockstep}lock:a"])).toBe("0");
  });

  test("DEL: a lock with a woken waiter is refused, and nothing is left behind", async () => {
    await using own = await OwnRedis.start();
    const locks = own.locks({ redis: await withheld(own, "del") });
    const lock = await own.locks().lock("a", held);
    const next = locks.lock("a", waiting).catch((error) => error);
    await until(() => waiters(own, "a", 1));
    await lock.unlock();
    expect(await next).toMatchObject({ code: "STORE_REFUSED" });
    expect(await own.client().call(["EXISTS", "{lockstep}lock:a"])).toBe("0");
  });

  test("ZPOPMIN: a lock is still released", async () => {
    await using own = await OwnRedis.start();
    const locks = own.locks({ redis: await withheld(own, "zpopmin") });
    expect(await (await locks.lock("a", held)).unlock()).toBe("released");
  });
});

describe.concurrent("a replica", () => {
  test("that does not answer blocks a lock that needs it, and no other lock", async () => {
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

  test("that is gone with the data of its master: no change says that the stock does not exist", async () => {
    await using own = await OwnRedis.start("redis-replica");
    const inventory = redisInventory(own.client(), { replicas: 1, replicaTimeout: 500 });
    const change = { sku: "cup", quantity: 1, operationId: "a" };
    const codeOf = () => inventory.decrement(change).catch(({ code }) => code);
    await until(async () => (await codeOf()) === "UNKNOWN_SKU");
    await own.replica.kill("SIGKILL");
    await own.restart();
    expect(await codeOf()).toBe("UNKNOWN_OUTCOME");
  });

  test("that is promoted without the last lock grants it to a second holder with a higher fence", async () => {
    await using own = await OwnRedis.start("redis-replica");
    await using wire = await TcpProxy.to(own.port);
    const redis = own.client({ port: own.replica.config.port });
    await redis.call(["REPLICAOF", "127.0.0.1", wire.port]);
    await until(async () => (await redis.call(["ROLE"]))?.[3] === "connected");
    wire.cut();
    const lock = await own.locks().lock("a", held);
    await own.node.kill("SIGKILL");
    await redis.call(["REPLICAOF", "NO", "ONE"]);
    const second = await own.locks({ redis }).lock("a", held);
    lock.assertHeld();
    second.assertHeld();
    expect(compareFence(lock.fence, second.fence)).toBe(-1);
  });
});

/** Whether the queue of a lock at the server has so many waiters. */
async function waiters(own: OwnRedis, name: string, count: number): Promise<boolean> {
  const standing = await own.admin.call(["ZCARD", `{lockstep}wait:${name}`]);
  return Number(standing) === count;
}

async function subscribers(redis: Redis): Promise<number> {
  const channels = await redis.call(["PUBSUB", "CHANNELS"]);
  return (channels as readonly string[]).length;
}

/** A lock, and a waiter for it, with its id in the queue, that does not hear of its turn until it gives up. */
async function holderAndDeafWaiter(own: OwnRedis, redis: Redis) {
  const lock = await own.locks({ redis: patient(own.client()) }).lock("a", held);
  const caller = new AbortController();
  const deaf = own.locks({ redis: deafened(own.client()) });
  const first = deaf.lock("a", { ...waiting, signal: caller.signal });
  const outcome = expect(first).rejects.toBe("enough");
  await until(() => waiters(own, "a", 1));
  const [id = ""] = (await redis.call(["ZRANGE", "{lockstep}wait:a", 0, 0])) as readonly string[];
  const giveUp = async () => {
    caller.abort("enough");
    await outcome;
  };
  return { lock, id, giveUp };
}

/** Returns a client whose turns last for longer than half a second, in which a busy machine may pause. */
function patient(redis: Required<Redis>, turn = LONG): Redis {
  return {
    ...changeable(redis),
    run: ({ lua }, input) => redis.run(script(lua.replace("'PX', 500", `'PX', ${turn}`)), input),
  };
}

/** Returns a client whose subscription is silent. */
function deafened(redis: Required<Redis>): Redis {
  return {
    ...changeable(redis),
    subscribe: (_, { ready }) => {
      ready();
      return () => {};
    },
  };
}

function changeable(redis: Required<Redis>): Required<Redis> {
  return {
    address: redis.address,
    connection: undefined,
    run: redis.run.bind(redis),
    runOnReplicas: redis.runOnReplicas.bind(redis),
    call: redis.call.bind(redis),
    close: redis.close.bind(redis),
    [Symbol.asyncDispose]: redis.close.bind(redis),
    subscribe: redis.subscribe.bind(redis),
  };
}
