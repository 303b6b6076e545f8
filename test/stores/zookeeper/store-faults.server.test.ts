import { AsyncLocalStorage } from "node:async_hooks";
import { describe, expect, test } from "vitest";
import { StoreRefusedError } from "../../../core/lock/errors.ts";
import type { LockEvent } from "../../../core/lock/events.ts";
import { zookeeperClient } from "../../../core/stores/zookeeper/client/client.ts";
import { createRequest } from "../../../core/stores/zookeeper/client/requests.ts";
import type { ZooKeeper, ZooKeeperSession } from "../../../core/stores/zookeeper/index.ts";
import { enter } from "../../../core/stores/zookeeper/locks/enter.ts";
import { zookeeperLocks } from "../../../core/stores/zookeeper/locks/index.ts";
import { newNodePrefix } from "../../../core/stores/zookeeper/locks/queue.ts";
import type { ServerNode } from "../../../infra/servers/server.ts";
import { startServer } from "../../../infra/servers/start.ts";
import { type AnyFault, FAULTS } from "../../support/faulty-zookeeper.ts";
import { strike } from "../../support/strike.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { pause, until, within } from "../../support/until.ts";
import {
  actAs,
  contendersOf,
  endSession,
  freshRoot,
  overhear,
  singleZooKeeper,
} from "../../support/zookeeper.ts";
import {
  admin,
  clients,
  connectBeforeTests,
  LONG,
  nobodyIn,
  openStore,
  SHORT,
  zookeeper,
} from "./clients.ts";

const { servers } = singleZooKeeper();
const port = Number(servers[0]?.split(":")[1]);

connectBeforeTests();

/** Waits for the n-th node of a queue, and returns its session, which is not `besides`. */
const ownerOf = (queue: string, n: number, besides = 0n) =>
  until(async () => {
    const name = (await contendersOf(admin, queue))[n];
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
          for (const name of names)
            expect(await contendersOf(admin, `${root}/${name}`)).toHaveLength(1);
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
    await until(async () => (await contendersOf(admin, `${root}/a`)).length === 2);
    const last = others.lock("a", { ttl: LONG, wait: LONG });
    await until(async () => (await contendersOf(admin, `${root}/a`)).length === 3);
    for (let i = 0; i < 5; i += 1) {
      wire.reset();
      await pause(20);
    }
    await holder.unlock();
    const lock = await waiting;
    expect(await contendersOf(admin, `${root}/a`)).toHaveLength(2);
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
      const names = await contendersOf(admin, `${root}/a`);
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
  expect(await contendersOf(admin, `${root}/a`)).toHaveLength(2);
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
  expect(await contendersOf(admin, `${root}/a`)).toHaveLength(2);
  proxy.mend();
  await until(async () => (await contendersOf(admin, `${root}/a`)).length === 1);
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
  expect(await contendersOf(admin, `${root}/a`)).toHaveLength(1);
  proxy.mend();
  await until(async () => (await contendersOf(admin, `${root}/a`)).length === 0);
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
  const [node] = await contendersOf(admin, `${root}/a`);
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
    const [node] = await contendersOf(admin, `${root}/${name}`);
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

test("tryLock rejects within seconds when the store cannot be reached", async () => {
  const client = zookeeperClient({ servers: ["127.0.0.1:1"] });
  const store = zookeeperLocks(client, { closeZooKeeper: true });
  const refused = { code: "STORE_UNAVAILABLE" };
  await expect(within(8_000, store.tryLock("a", { ttl: 2_000 }))).rejects.toMatchObject(refused);
  await expect(within(8_000, store.inspect("a"))).rejects.toMatchObject(refused);
  await within(8_000, store.close());
});
