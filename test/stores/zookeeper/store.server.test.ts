import { AsyncLocalStorage } from "node:async_hooks";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Leader } from "../../../core/lock/election.ts";
import { StoreRefusedError } from "../../../core/lock/errors.ts";
import type { LockEvent } from "../../../core/lock/events.ts";
import type { LockStore } from "../../../core/lock/lock.ts";
import type { StoreOptions } from "../../../core/lock/store.ts";
import { zookeeperClient } from "../../../core/stores/zookeeper/client/client.ts";
import { createRequest } from "../../../core/stores/zookeeper/client/requests.ts";
import {
  openZooKeeper,
  type ZooKeeper,
  type ZooKeeperSession,
  zookeeperElection,
} from "../../../core/stores/zookeeper/index.ts";
import { enter } from "../../../core/stores/zookeeper/locks/enter.ts";
import { zookeeperLocks } from "../../../core/stores/zookeeper/locks/index.ts";
import { newNodePrefix } from "../../../core/stores/zookeeper/locks/queue.ts";
import type { ServerNode } from "../../../infra/servers/server.ts";
import { startServer } from "../../../infra/servers/start.ts";
import { type AnyFault, FAULTS, faulty } from "../../support/faulty-zookeeper.ts";
import { strike } from "../../support/strike.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { pause, until, within } from "../../support/until.ts";
import {
  actAs,
  endSession,
  freshRoot,
  lineOf,
  overhear,
  singleZooKeeper,
} from "../../support/zookeeper.ts";

const LONG = 20_000;

/** A ttl that a test outlasts, and that outlasts the pauses of a busy machine. */
const SHORT = 4_000;

const { servers } = singleZooKeeper();
const port = Number(servers[0]?.split(":")[1]);
const zookeeper = zookeeperClient({ servers });
let admin: ZooKeeperSession;
const stores: LockStore[] = [];

beforeAll(async () => {
  admin = await zookeeper.openSession(60_000);
});

afterAll(async () => {
  await Promise.all(stores.map((store) => store.close()));
  await zookeeper.close();
});

const openStore = (options: StoreOptions & { root: string }, client = zookeeper) => {
  const store = zookeeperLocks(client, options);
  stores.push(store);
  return store;
};

/** Makes two clients of the same locks; faults can be injected into the requests of the first one. */
function clients() {
  const flaky = faulty(zookeeper);
  const root = freshRoot();
  const [ours, theirs] = [openStore({ root }, flaky.zookeeper), openStore({ root })];
  return { flaky, root, ours, theirs };
}

const nobodyIn = async (root: string, ...names: readonly string[]) => {
  for (const name of names) expect(await lineOf(admin, `${root}/${name}`)).toEqual([]);
};

/** Waits for the n-th node of a queue, and returns its session, which is not `besides`. */
const ownerOf = (queue: string, n: number, besides = 0n) =>
  until(async () => {
    const name = (await lineOf(admin, queue))[n];
    const owner = name ? (await admin.read(`${queue}/${name}`))?.stat.owner : undefined;
    return owner !== besides && owner;
  });

const ANY: readonly AnyFault[] = [...FAULTS, "seen-late"];

test("a holder learns that its lock was released by others, although the server was overloaded for a moment", async () => {
  const { flaky, ours, theirs } = clients();
  const lock = await ours.lock("a", { ttl: LONG, wait: LONG });
  let refused = 0;
  flaky.decide = (call) => {
    if (call !== "read" || refused > 0) return undefined;
    refused += 1;
    return "refused";
  };
  await until(() => refused > 0);
  await theirs.release("a", { fence: String(lock.fence) });
  await until(() => lock.signal.aborted);
});

describe.concurrent.each(ANY)("a request that is %s, whichever it is,", (fault) => {
  test("leaves no node behind, and an acquired lock is held", async () => {
    const { flaky, root, ours, theirs } = clients();
    const options = { ttl: LONG, wait: LONG };
    await (await ours.lockAll(["a", "b"], options)).unlock();
    for (const names of [["a"], ["a", "b"]]) {
      for (let n = 1, struck = true; struck; n += 1) {
        const isStruck = strike(flaky, n, fault);
        const lock = await ours.lockAll(names, options).catch((error) => {
          expect(error).toMatchObject({ code: expect.stringMatching(/UNAVAILABLE/) });
        });
        if (lock) {
          lock.assertHeld();
          for (const name of names)
            expect(await theirs.tryLock(name, { ttl: LONG })).toBe(undefined);
          expect(await lock.unlock()).toBe("released");
        }
        await nobodyIn(root, ...names);
        struck = isStruck();
      }
    }
  });

  test("at a waiter leaves no node behind, and no waiter blocked", async () => {
    const { flaky, root, ours, theirs } = clients();
    await (await ours.lock("a", { ttl: LONG, wait: LONG })).unlock();
    for (let n = 1, struck = true; struck; n += 1) {
      const holder = await theirs.lock("a", { ttl: LONG, wait: LONG });
      const before = flaky.calls.length;
      const isStruck = strike(flaky, n, fault);
      const waiting = ours
        .lock("a", { ttl: LONG, wait: LONG })
        .catch((error) => void expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" }));
      const stands = () => flaky.calls.slice(before).filter((name) => name === "read").length >= 3;
      await Promise.race([waiting, until(stands)]);
      await holder.unlock();
      await (await waiting)?.unlock();
      await nobodyIn(root, "a");
      struck = isStruck();
    }
  });
});

describe.concurrent("a wire that breaks", () => {
  test.each(["loseNextAnswer", "loseNextRequest"] as const)(
    "at any request (%s) leaves no node behind, and the lock is acquired all the same",
    async (lose) => {
      await using wire = await TcpProxy.to(port);
      await using client = zookeeperClient({ servers: [`127.0.0.1:${wire.port}`] });
      const root = freshRoot();
      const store = openStore({ root }, client);
      await (await store.lockAll(["a", "b"], { ttl: LONG, wait: LONG })).unlock();
      for (const names of [["a"], ["a", "b"]]) {
        for (let spared = 0, struck = true; struck; spared += 1) {
          wire[lose](spared);
          const lock = await store.lockAll(names, { ttl: LONG, wait: LONG });
          for (const name of names) expect(await lineOf(admin, `${root}/${name}`)).toHaveLength(1);
          expect(await lock.unlock()).toBe("released");
          struck = !wire.isToLose;
          wire.loseNothing();
          await nobodyIn(root, ...names);
        }
      }
    },
  );

  test("of a waiter leaves it in its place", async () => {
    await using wire = await TcpProxy.to(port);
    await using client = zookeeperClient({ servers: [`127.0.0.1:${wire.port}`] });
    const root = freshRoot();
    const [ours, theirs, others] = [
      openStore({ root }, client),
      openStore({ root }),
      openStore({ root }),
    ];
    const holder = await theirs.lock("a", { ttl: LONG, wait: LONG });
    const waiting = ours.lock("a", { ttl: LONG, wait: LONG });
    await until(async () => (await lineOf(admin, `${root}/a`)).length === 2);
    const last = others.lock("a", { ttl: LONG, wait: LONG });
    await until(async () => (await lineOf(admin, `${root}/a`)).length === 3);
    for (let i = 0; i < 5; i += 1) {
      wire.reset();
      await pause(20);
    }
    await holder.unlock();
    const lock = await waiting;
    expect(await lineOf(admin, `${root}/a`)).toHaveLength(2);
    await lock.unlock();
    await (await last).unlock();
  });
});

test("an abort before any request or after any answer leaves no node behind", async () => {
  const { flaky, root, ours, theirs } = clients();
  await (await ours.lockAll(["a", "b"], { ttl: LONG, wait: LONG })).unlock();
  for (const names of [["a"], ["a", "b"]]) {
    for (const when of ["before", "after"] as const) {
      for (let n = 1, struck = true; struck; n += 1) {
        const holder = await theirs.lock("a", { ttl: LONG, wait: LONG });
        const before = flaky.calls.length;
        const caller = new AbortController();
        struck = false;
        const strike = (call: number) => {
          if (call !== before + n) return;
          struck = true;
          caller.abort("enough");
        };
        flaky.decide = (_, call) => {
          if (when === "before") strike(call);
          return undefined;
        };
        flaky.answered = (_, call) => when === "after" && strike(call);
        const waiting = ours.lockAll(names, { ttl: LONG, wait: LONG, signal: caller.signal }).then(
          (lock) => lock.unlock(),
          (error) => expect(error).toBe("enough"),
        );
        const stands = () =>
          flaky.calls.slice(before).filter((name) => name === "read").length >= 3;
        await Promise.race([waiting, until(stands)]);
        await holder.unlock();
        await waiting;
        await nobodyIn(root, ...names);
      }
    }
  }
});

test("a waiter whose node is gone enters the queue again, at its end", async () => {
  const { root, ours, theirs } = clients();
  const others = openStore({ root });
  const holder = await theirs.lock("a", { ttl: LONG, wait: LONG });
  const waiting = ours.lock("a", { ttl: LONG, wait: LONG });
  const inLine = (count: number) =>
    until(async () => {
      const names = await lineOf(admin, `${root}/a`);
      return names.length === count && names;
    });
  const [, node] = await inLine(2);
  const last = others.lock("a", { ttl: LONG, wait: LONG });
  await inLine(3);
  await admin.remove(`${root}/a/${node}`);
  await inLine(3);
  holder.assertHeld();
  await holder.unlock();
  const next = await last;
  expect(await lineOf(admin, `${root}/a`)).toHaveLength(2);
  await next.unlock();
  const lock = await waiting;
  expect(lock.fence.token > next.fence.token).toBe(true);
  await lock.unlock();
});

test("the signal of a holder aborts at once when another client ends its session", async () => {
  await using wire = await overhear(servers[0] ?? "");
  await using client = zookeeperClient({ servers: [`127.0.0.1:${wire.port}`] });
  const root = freshRoot();
  const ours = openStore({ root }, client);
  const lock = await ours.lock("a", { ttl: LONG, wait: LONG });
  const owner = await ownerOf(`${root}/a`, 0);
  await endSession(servers[0] ?? "", owner, await wire.password);
  await until(() => lock.signal.aborted);
  expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "taken" });
  expect(await lock.unlock()).toBe("was-lost");
  // The same client continues with another session.
  expect(await (await ours.lock("a", { ttl: LONG, wait: LONG })).unlock()).toBe("released");
});

test("a waiter enters the queue again when another client ends its session", async () => {
  await using wire = await overhear(servers[0] ?? "");
  await using client = zookeeperClient({ servers: [`127.0.0.1:${wire.port}`] });
  const root = freshRoot();
  const [ours, theirs] = [openStore({ root }, client), openStore({ root })];
  const holder = await theirs.lock("a", { ttl: LONG, wait: LONG });
  const waiting = ours.lock("a", { ttl: LONG, wait: LONG });
  const owner = await ownerOf(`${root}/a`, 1);
  await endSession(servers[0] ?? "", owner, await wire.password);
  expect(await ownerOf(`${root}/a`, 1, owner)).not.toBe(owner);
  await holder.unlock();
  expect(await (await waiting).unlock()).toBe("released");
});

test("a node that a server brings back is removed once its session has a new connection", async () => {
  await using wire = await overhear(servers[0] ?? "");
  await using proxy = await TcpProxy.to(wire.port);
  await using client = zookeeperClient({ servers: [`127.0.0.1:${proxy.port}`] });
  const root = freshRoot();
  const [ours, theirs] = [openStore({ root }, client), openStore({ root })];
  const lock = await ours.lock("a", { ttl: LONG, wait: LONG });
  const owner = await ownerOf(`${root}/a`, 0);
  proxy.cut();
  const node = { path: `${root}/a/${newNodePrefix()}`, mode: "sequential" } as const;
  const request = createRequest(node, "anyone");
  expect(await actAs(servers[0] ?? "", owner, await wire.password, request)).toBe("answered");
  expect(await lineOf(admin, `${root}/a`)).toHaveLength(2);
  proxy.mend();
  await until(async () => (await lineOf(admin, `${root}/a`)).length === 1);
  lock.assertHeld();
  expect(await lock.unlock()).toBe("released");
  await (await theirs.lock("a", { ttl: LONG, wait: LONG })).unlock();
});

test("an entry whose removal was not answered is removed once its session has a new connection", async () => {
  await using proxy = await TcpProxy.to(port);
  await using client = zookeeperClient({ servers: [`127.0.0.1:${proxy.port}`] });
  const session = await client.openSession(LONG);
  const root = freshRoot();
  const queues = [`${root}/a`];
  const { signal } = new AbortController();
  const entry = await enter({
    ...{ session, root, queues, data: "", ttl: LONG, signal },
    onDoubt() {},
  });
  proxy.cut();
  await expect(entry.leave(AbortSignal.timeout(500))).rejects.toThrow();
  expect(await lineOf(admin, `${root}/a`)).toHaveLength(1);
  proxy.mend();
  await until(async () => (await lineOf(admin, `${root}/a`)).length === 0);
});

test("an observer of an election gets the leader after a lock that has moved to another session", async () => {
  const root = freshRoot();
  await using store = await openZooKeeper({ servers }, { root });
  const lock = await store.locks.lock("a", { ttl: SHORT, wait: LONG });
  await lock.ensure(3 * SHORT);
  const election = await store.elections.open("a");
  expect((await election.leader())?.fence).toBe(String(lock.fence));
  const states = election.observe();
  expect((await states.next()).value).toMatchObject({ fence: String(lock.fence) });
  await lock.unlock();
  await election.campaign("next");
  let last: Leader | undefined;
  for await (const leader of states) {
    last = leader;
    if (leader?.value === "next") break;
  }
  expect(last?.fence).toBe(String(election.fence));
  await election.close();
});

test("a waiter survives an outage of the server that is longer than its ttl", async () => {
  await using own = await startServer("zookeeper");
  const [node] = own.nodes as [ServerNode];
  await using client = zookeeperClient({ servers: [`127.0.0.1:${node.config.port}`] });
  const [ours, theirs] = [openStore({ root: "/a" }, client), openStore({ root: "/a" }, client)];
  await theirs.lock("a", { ttl: SHORT, wait: LONG });
  const waiting = ours.lock("a", { ttl: SHORT, wait: 60_000 });
  await until(async () => (await ours.inspect("a")).waiters === 1);
  await node.kill("SIGKILL");
  await pause(1.5 * SHORT);
  await node.start();
  expect(await (await waiting).unlock()).toBe("released");
});

test("the signal of a holder aborts at once when its node is gone, and its unlock does no harm", async () => {
  const { root, ours, theirs } = clients();
  const lock = await ours.lock("a", { ttl: LONG, wait: LONG });
  await pause(100);
  const [node] = await lineOf(admin, `${root}/a`);
  await admin.remove(`${root}/a/${node}`);
  await until(() => lock.signal.aborted);
  expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "taken" });
  const next = await theirs.lock("a", { ttl: LONG, wait: LONG });
  expect(next.fence.token > lock.fence.token).toBe(true);
  expect(await lock.unlock()).toBe("was-lost");
  next.assertHeld();
});

test("each lock of a session reports the end of the session in its own async context", async () => {
  await using wire = await overhear(servers[0] ?? "");
  await using client = zookeeperClient({ servers: [`127.0.0.1:${wire.port}`] });
  const caller = new AsyncLocalStorage<string>();
  const told: unknown[] = [];
  const onEvent = ({ type, names }: LockEvent) => {
    if (type === "lost") told.push([names[0], caller.getStore()]);
  };
  const root = freshRoot();
  const locks = openStore({ root, onEvent }, client);
  const sessions = new Set<bigint | undefined>();
  for (const name of ["a", "b"]) {
    await caller.run(name, () => locks.lock(name, { ttl: LONG, wait: LONG }));
    const [node] = await lineOf(admin, `${root}/${name}`);
    sessions.add((await admin.read(`${root}/${name}/${node}`))?.stat.owner);
  }
  const [session = 0n, ...others] = sessions;
  expect(others).toEqual([]);
  await endSession(servers[0] ?? "", session, await wire.password);
  await until(() => told.length === 2);
  expect(told.sort()).toEqual([
    ["a", "a"],
    ["b", "b"],
  ]);
});

test("a lock that is held for longer than its ttl stays at the head of its queue", async () => {
  const { root, ours, theirs } = clients();
  const all = await ours.lockAll(["a", "b"], { ttl: SHORT, wait: LONG });
  const waiting = theirs.lock("a", { ttl: LONG, wait: LONG });
  await until(async () => (await lineOf(admin, `${root}/a`)).length === 2);
  const [before] = await lineOf(admin, `${root}/a`);
  await all.ensure(3 * SHORT);
  all.assertHeld(SHORT);
  expect((await lineOf(admin, `${root}/a`))[0]).toBe(before);
  expect(await theirs.inspect("a")).toMatchObject({
    fence: String(all.fences.get("a")),
    waiters: 1,
  });
  // The guard is that of the new session.
  await pause(1.5 * SHORT);
  all.assertHeld();
  expect(await all.unlock()).toBe("released");
  const next = await waiting;
  expect(next.fence.token > (all.fences.get("a")?.token ?? 0n)).toBe(true);
});

test("tokens rise although the queue is deleted and its sequence starts anew", async () => {
  const { root, ours } = clients();
  const first = await ours.lock("a", { ttl: LONG, wait: LONG });
  const [before = ""] = await lineOf(admin, `${root}/a`);
  await first.unlock();
  // ZooKeeper deletes containers that are empty.
  await until(async () => (await admin.children(`${root}/a`)) === undefined);
  const second = await ours.lock("a", { ttl: LONG, wait: LONG });
  const [after = ""] = await lineOf(admin, `${root}/a`);
  expect(after.slice(-10)).toBe(before.slice(-10));
  expect(second.fence.token > first.fence.token).toBe(true);
});

test("a queue that is deleted again and again can be entered", async () => {
  const { root, ours, theirs } = clients();
  let isOver = false;
  const deleting = (async () => {
    for (; !isOver; await pause(1)) await admin.remove(`${root}/a`).catch(() => {});
  })();
  try {
    for (const store of Array.from({ length: 20 }, (_, i) => (i % 2 === 0 ? ours : theirs))) {
      await (await store.lock("a", { ttl: LONG, wait: LONG })).unlock();
    }
  } finally {
    isOver = true;
    await deleting;
  }
});

test("the order in the queue is that of the changes, also past the last sequence number", async () => {
  const { root, ours } = clients();
  const queue = `${root}/a`;
  await (await ours.lock("a", { ttl: LONG, wait: LONG })).unlock();
  const made = ["x-2147483646", "x-2147483647", "x--2147483648", "x--2147483647"];
  for (const name of made) await admin.create({ path: `${queue}/${name}` });
  await admin.create({ path: `${queue}/no-number` });
  expect(await lineOf(admin, queue)).toEqual(made);
  for (const name of [...made, "no-number"]) await admin.remove(`${queue}/${name}`);
});

test("nested names are separate locks, also if a segment ends in ten digits", async () => {
  const { root, ours, theirs } = clients();
  const options = { ttl: LONG, wait: LONG };
  const names = ["a/b", "a/1700000000", "a/b/0000000000", "a/", "/a", "a", "a/b/./c"];
  const locks = [];
  for (const name of names) locks.push(await ours.lock(name, options));
  for (const name of names) expect(await theirs.tryLock(name, { ttl: LONG })).toBeUndefined();
  const nameOf = ({ name }: { readonly name: string }) => name;
  expect((await theirs.list()).map(nameOf)).toEqual([...names].sort());
  expect((await theirs.list("a/b")).map(nameOf)).toEqual(["a/b", "a/b/./c", "a/b/0000000000"]);
  expect((await theirs.list("a/b/0")).map(nameOf)).toEqual(["a/b/0000000000"]);
  expect(await theirs.inspect("a")).toMatchObject({ waiters: 0 });
  const waiting = theirs.lock("a", { ttl: LONG, wait: LONG });
  await until(async () => (await ours.inspect("a")).waiters === 1);
  await locks[names.indexOf("a")]?.unlock();
  await (await waiting).unlock();
  expect(await (await ours.lockAll(["a", "c/d"], options)).unlock()).toBe("released");
  const session = await zookeeper.openSession(LONG);
  const election = zookeeperElection(session, `${root}/a`);
  await election.campaign("elected");
  expect((await election.leader())?.value).toBe("elected");
  await election.resign();
});

test("the parent nodes of nested names are deleted after the last of their locks", async () => {
  const { root, ours } = clients();
  await (await ours.lock("shop/sku/teapot", { ttl: LONG, wait: LONG })).unlock();
  await until(async () => (await admin.children(`${root}/shop`)) === undefined);
  expect(await admin.children(root)).toEqual([]);
});

test("operators who raise the generation at once get one each", async () => {
  const root = freshRoot();
  const both = [openStore({ root }), openStore({ root })];
  const raised = await Promise.all([...both, ...both].map((one) => one.raiseGeneration()));
  expect(raised.sort()).toEqual([1, 2, 3, 4]);
});

test("a ttl that the server does not grant is refused, with the longest one", async () => {
  const { ours } = clients();
  await expect(ours.tryLock("a", { ttl: 3_600_001 })).rejects.toMatchObject({
    code: "STORE_REFUSED",
    message: expect.stringMatching(/3600000 ms.*3600001 ms.*maxSessionTimeout/),
  });
  const lock = await ours.lock("a", { ttl: LONG, wait: LONG });
  await expect(lock.ensure(4_000_000)).rejects.toMatchObject({ code: "STORE_REFUSED" });
  lock.assertHeld();
});

test("a holder learns that its lock was released by others, although the server has refused a read before", async () => {
  let isRefused = false;
  const refuseOnce = (session: ZooKeeperSession): ZooKeeperSession =>
    new Proxy(session, {
      get(target, name) {
        if (name === "read" && !isRefused) {
          return async (path: string) => {
            isRefused = path.includes("-lock-");
            if (isRefused) throw new StoreRefusedError("zookeeper", "no permission");
            return undefined;
          };
        }
        const value = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  const client: ZooKeeper = {
    address: zookeeper.address,
    openSession: async (ttl, signal) => refuseOnce(await zookeeper.openSession(ttl, signal)),
    close: async () => {},
    [Symbol.asyncDispose]: async () => {},
  };
  const root = freshRoot();
  const lock = await openStore({ root }, client).lock("a", { ttl: LONG, wait: LONG });
  await until(() => isRefused);
  await openStore({ root }).release("a", { fence: String(lock.fence) });
  // The next look comes 10 s after the refusal.
  await until(() => lock.signal.aborted);
  expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST" });
});

describe("a user", () => {
  const as = (user: string, password: string) => zookeeperClient({ servers, user, password });

  test("owns the nodes that it has created: a user with another password cannot access them", async () => {
    const root = freshRoot();
    await using right = as("ann", "right");
    await using wrong = as("ann", "wrong");
    const ours = openStore({ root }, right);
    const lock = await ours.lock("a", { ttl: LONG, wait: LONG });
    const refused = { code: "STORE_REFUSED", retryable: false };
    for (const client of [wrong, zookeeper]) {
      const theirs = openStore({ root }, client);
      await expect(theirs.tryLock("a", { ttl: LONG })).rejects.toMatchObject(refused);
      await expect(theirs.lock("b", { ttl: LONG, wait: LONG })).rejects.toMatchObject(refused);
      await expect(theirs.inspect("a")).rejects.toMatchObject(refused);
    }
    await using again = as("ann", "right");
    expect(await openStore({ root }, again).tryLock("a", { ttl: LONG })).toBe(undefined);
    expect(await lock.unlock()).toBe("released");
  });

  test("does not keep others from listing their own locks", async () => {
    const root = freshRoot();
    await using ann = as("ann", "right");
    const [ours, theirs] = [openStore({ root }), openStore({ root }, ann)];
    const lock = await ours.lock("shared", { ttl: LONG, wait: LONG });
    const hidden = await theirs.lock("private/a", { ttl: LONG, wait: LONG });
    expect(await ours.list("")).toMatchObject([{ name: "shared" }]);
    await Promise.all([lock.unlock(), hidden.unlock()]);
  });
});

/** Makes a client that keeps the sessions that it opens, and returns each when `ready` resolves. */
function keeping(ready: Promise<void> = Promise.resolve()) {
  const sessions: ZooKeeperSession[] = [];
  const client: ZooKeeper = {
    address: zookeeper.address,
    async openSession(ttl) {
      const session = await zookeeper.openSession(ttl);
      sessions.push(session);
      await ready;
      return session;
    },
    close: async () => {},
    [Symbol.asyncDispose]: async () => {},
  };
  return { client, sessions };
}

test.each([true, false])(
  "a session that opens after its store was closed is ended (renew: %s)",
  async (renew) => {
    const gate = Promise.withResolvers<void>();
    const { client, sessions } = keeping(gate.promise);
    const store = openStore({ root: freshRoot() }, client);
    const locking = store.lock("a", { ttl: LONG, wait: LONG, renew }).catch((error) => error);
    await until(() => sessions.length > 0);
    await store.close();
    gate.resolve();
    expect(await locking).toMatchObject({
      code: expect.stringMatching(/STORE_CLOSED|UNKNOWN_OUTCOME/),
    });
    await until(() => sessions.every(({ signal }) => signal.aborted));
  },
);

test("a lock that is not renewed starts with its whole ttl after a wait, without heartbeats", async () => {
  const { client, sessions } = keeping();
  const root = freshRoot();
  const [ours, theirs] = [openStore({ root }, client), openStore({ root })];
  const ttl = 4_000;
  const holder = await theirs.lock("a", { ttl: LONG, wait: LONG });
  const waiting = ours.lock("a", { ttl, wait: LONG, renew: false });
  await until(async () => (await lineOf(admin, `${root}/a`)).length === 2);
  await pause(ttl / 4);
  const releasedAt = performance.now();
  await holder.unlock();
  await waiting;
  const grantedAt = () => sessions[0]?.granted.sentAt.mono ?? 0;
  const sentAt = grantedAt();
  expect(sentAt).toBeGreaterThan(releasedAt - ttl / 10);
  await pause(0.7 * ttl);
  expect(grantedAt()).toBe(sentAt);
});

test("tryLock rejects within seconds when the store cannot be reached", async () => {
  const client = zookeeperClient({ servers: ["127.0.0.1:1"] });
  const store = zookeeperLocks(client, { closeZooKeeper: true });
  const refused = { code: "STORE_UNAVAILABLE" };
  await expect(within(8_000, store.tryLock("a", { ttl: 2_000 }))).rejects.toMatchObject(refused);
  await expect(within(8_000, store.inspect("a"))).rejects.toMatchObject(refused);
  await within(8_000, store.close());
});
