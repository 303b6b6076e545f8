import { AsyncLocalStorage } from "node:async_hooks";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { LockEvent } from "../../../core/lock/events.ts";
import type { LockStore } from "../../../core/lock/lock.ts";
import type { StoreOptions } from "../../../core/lock/store.ts";
import {
  openZooKeeper,
  type Session,
  zookeeperStore,
} from "../../../core/stores/zookeeper/index.ts";
import { FAULTS, type Fault, faulty } from "../../support/faulty-zookeeper.ts";
import { strike } from "../../support/strike.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { pause, until, within } from "../../support/until.ts";
import {
  endSession,
  freshRoot,
  lineOf,
  overhear,
  singleZooKeeper,
} from "../../support/zookeeper.ts";

const LONG = 20_000;

/** What is told takes milliseconds. */
const AT_ONCE = 4_000;

const { servers } = singleZooKeeper();
const port = Number(servers[0]?.split(":")[1]);
const zookeeper = openZooKeeper({ servers });
let admin: Session;
const stores: LockStore[] = [];

beforeAll(async () => {
  admin = await zookeeper.openSession(60_000);
});

afterAll(async () => {
  await Promise.all(stores.map((store) => store.close()));
  await zookeeper.close();
});

const openStore = (options: StoreOptions & { root: string }, client = zookeeper) => {
  const store = zookeeperStore(client, options);
  stores.push(store);
  return store;
};

/** Two clients with the same locks; the requests of the first one go wrong as told. */
function clients() {
  const flaky = faulty(zookeeper);
  const root = freshRoot();
  const [ours, theirs] = [openStore({ root }, flaky.zookeeper), openStore({ root })];
  return { flaky, root, ours, theirs };
}

const nobodyIn = async (root: string, ...names: readonly string[]) => {
  for (const name of names) expect(await lineOf(admin, `${root}/${name}`)).toEqual([]);
};

describe.concurrent.each(FAULTS)("a request that is %s, whichever it is,", (fault: Fault) => {
  test("leaves no node behind, and a lock that was given is held", async () => {
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

  test("and comes to one who waits, leaves no node behind and nobody waiting", async () => {
    const { flaky, root, ours, theirs } = clients();
    await (await ours.lock("a", { ttl: LONG, wait: 0 })).unlock();
    for (let n = 1, struck = true; struck; n += 1) {
      const holder = await theirs.lock("a", { ttl: LONG, wait: 0 });
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
    "at any request (%s) leaves no node behind, and the lock is had all the same",
    async (lose) => {
      await using wire = await TcpProxy.to(port);
      await using client = openZooKeeper({ servers: [`127.0.0.1:${wire.port}`] });
      const root = freshRoot();
      const store = openStore({ root }, client);
      await (await store.lockAll(["a", "b"], { ttl: LONG, wait: 0 })).unlock();
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

  test("under a waiter leaves it in its place", async () => {
    await using wire = await TcpProxy.to(port);
    await using client = openZooKeeper({ servers: [`127.0.0.1:${wire.port}`] });
    const root = freshRoot();
    const [ours, theirs, others] = [
      openStore({ root }, client),
      openStore({ root }),
      openStore({ root }),
    ];
    const holder = await theirs.lock("a", { ttl: LONG, wait: 0 });
    const waiting = ours.lock("a", { ttl: LONG, wait: LONG });
    await until(async () => (await lineOf(admin, `${root}/a`)).length === 2);
    const last = others.lock("a", { ttl: LONG, wait: LONG });
    await until(async () => (await lineOf(admin, `${root}/a`)).length === 3);
    for (let i = 0; i < 5; i += 1) {
      wire.reset();
      await pause(20);
    }
    await holder.unlock();
    const lock = await within(AT_ONCE, waiting);
    expect(await lineOf(admin, `${root}/a`)).toHaveLength(2);
    await lock.unlock();
    await (await last).unlock();
  });
});

test("aborted before any request or after any answer, nothing is left behind", async () => {
  const { flaky, root, ours, theirs } = clients();
  await (await ours.lockAll(["a", "b"], { ttl: LONG, wait: 0 })).unlock();
  for (const names of [["a"], ["a", "b"]]) {
    for (const when of ["before", "after"] as const) {
      for (let n = 1, struck = true; struck; n += 1) {
        const holder = await theirs.lock("a", { ttl: LONG, wait: 0 });
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

test("a waiter whose node is gone is told at once, and never holds", async () => {
  const { root, ours, theirs } = clients();
  const holder = await theirs.lock("a", { ttl: LONG, wait: 0 });
  const waiting = ours.lock("a", { ttl: LONG, wait: LONG });
  const outcome = expect(within(AT_ONCE, waiting)).rejects.toMatchObject({
    code: "SESSION_EXPIRED",
  });
  const line = await until(async () => {
    const names = await lineOf(admin, `${root}/a`);
    return names.length === 2 && names;
  });
  await pause(50);
  await admin.remove(`${root}/a/${line[1]}`);
  await outcome;
  holder.assertHeld();
});

test.each(["holds", "waits"])(
  "who %s when somebody else ends the session is told at once",
  async (state) => {
    await using wire = await overhear(servers[0] ?? "");
    await using client = openZooKeeper({ servers: [`127.0.0.1:${wire.port}`] });
    const root = freshRoot();
    const [ours, theirs] = [openStore({ root }, client), openStore({ root })];
    const first = state === "waits" ? await theirs.lock("a", { ttl: LONG, wait: 0 }) : undefined;
    const locking = ours.lock("a", { ttl: LONG, wait: LONG });
    const name = await until(async () => (await lineOf(admin, `${root}/a`))[first ? 1 : 0]);
    const { owner } = (await admin.read(`${root}/a/${name}`))?.stat ?? { owner: 0n };
    const lock = first ? undefined : await locking;
    const told = { code: "SESSION_EXPIRED" };
    const outcome = first && expect(within(AT_ONCE, locking)).rejects.toMatchObject(told);
    await endSession(servers[0] ?? "", owner, await wire.password);
    if (lock) {
      await until(() => lock.signal.aborted, AT_ONCE);
      expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "taken" });
      expect(await lock.unlock()).toBe("was-lost");
    }
    await outcome;
    // And the same client goes on, with another session.
    await first?.unlock();
    expect(await (await ours.lock("a", { ttl: LONG, wait: 0 })).unlock()).toBe("released");
  },
);

test("a holder whose node is gone is told at once, and harms nobody", async () => {
  const { root, ours, theirs } = clients();
  const lock = await ours.lock("a", { ttl: LONG, wait: 0 });
  await pause(100);
  const [node] = await lineOf(admin, `${root}/a`);
  await admin.remove(`${root}/a/${node}`);
  await until(() => lock.signal.aborted, AT_ONCE);
  expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "taken" });
  const next = await theirs.lock("a", { ttl: LONG, wait: 0 });
  expect(next.fence.token > lock.fence.token).toBe(true);
  expect(await lock.unlock()).toBe("was-lost");
  next.assertHeld();
});

test("the end of a session is told where each of its locks was acquired", async () => {
  await using wire = await overhear(servers[0] ?? "");
  await using client = openZooKeeper({ servers: [`127.0.0.1:${wire.port}`] });
  const caller = new AsyncLocalStorage<string>();
  const told: unknown[] = [];
  const onEvent = ({ type, names }: LockEvent) => {
    if (type === "lost") told.push([names[0], caller.getStore()]);
  };
  const root = freshRoot();
  const locks = openStore({ root, onEvent }, client);
  const sessions = new Set<bigint | undefined>();
  for (const name of ["a", "b"]) {
    await caller.run(name, () => locks.lock(name, { ttl: LONG, wait: 0 }));
    const [node] = await lineOf(admin, `${root}/${name}`);
    sessions.add((await admin.read(`${root}/${name}/${node}`))?.stat.owner);
  }
  const [session = 0n, ...others] = sessions;
  expect(others).toEqual([]);
  await endSession(servers[0] ?? "", session, await wire.password);
  await until(() => told.length === 2, AT_ONCE);
  expect(told.sort()).toEqual([
    ["a", "a"],
    ["b", "b"],
  ]);
});

test("a lock that is held for longer than its ttl stays at the head of its line", async () => {
  const { root, ours, theirs } = clients();
  const all = await ours.lockAll(["a", "b"], { ttl: 1_000, wait: 0 });
  const waiting = theirs.lock("a", { ttl: LONG, wait: LONG });
  await until(async () => (await lineOf(admin, `${root}/a`)).length === 2);
  const [before] = await lineOf(admin, `${root}/a`);
  await all.ensure(5_000);
  all.assertHeld(4_000);
  expect((await lineOf(admin, `${root}/a`))[0]).toBe(before);
  expect(await theirs.inspect("a")).toMatchObject({
    fence: String(all.fences.get("a")),
    waiters: 1,
  });
  // Its guard is that of the new session.
  await pause(1_500);
  all.assertHeld();
  expect(await all.unlock()).toBe("released");
  const next = await within(AT_ONCE, waiting);
  expect(next.fence.token > (all.fences.get("a")?.token ?? 0n)).toBe(true);
});

test("tokens rise although the queue is deleted and its sequence starts anew", async () => {
  const { root, ours } = clients();
  const first = await ours.lock("a", { ttl: LONG, wait: 0 });
  const [before = ""] = await lineOf(admin, `${root}/a`);
  await first.unlock();
  // ZooKeeper deletes containers that are empty.
  await until(async () => (await admin.children(`${root}/a`)) === undefined);
  const second = await ours.lock("a", { ttl: LONG, wait: 0 });
  const [after = ""] = await lineOf(admin, `${root}/a`);
  expect(after.slice(-10)).toBe(before.slice(-10));
  expect(second.fence.token > first.fence.token).toBe(true);
});

test("a queue that is deleted again and again keeps nobody out", async () => {
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

test("the order in the line is that of the changes, also past the last sequence", async () => {
  const { root, ours } = clients();
  const queue = `${root}/a`;
  await (await ours.lock("a", { ttl: LONG, wait: 0 })).unlock();
  const made = ["x-2147483646", "x-2147483647", "x--2147483648", "x--2147483647"];
  for (const name of made) await admin.create({ path: `${queue}/${name}` });
  await admin.create({ path: `${queue}/no-number` });
  expect(await lineOf(admin, queue)).toEqual(made);
  for (const name of [...made, "no-number"]) await admin.remove(`${queue}/${name}`);
});

test("a ttl that the server does not grant is refused, with what it grants", async () => {
  const { ours } = clients();
  await expect(ours.tryLock("a", { ttl: 3_600_001 })).rejects.toMatchObject({
    code: "STORE_REFUSED",
    message: expect.stringMatching(/3600000 ms.*3600001 ms.*maxSessionTimeout/),
  });
  const lock = await ours.lock("a", { ttl: 1_000, wait: 0 });
  await expect(lock.ensure(4_000_000)).rejects.toMatchObject({ code: "STORE_REFUSED" });
  lock.assertHeld();
});

describe("a user", () => {
  const as = (user: string, password: string) => openZooKeeper({ servers, user, password });

  test("owns what it has made: with another password, nothing can be done with it", async () => {
    const root = freshRoot();
    await using right = as("ann", "right");
    await using wrong = as("ann", "wrong");
    const ours = openStore({ root }, right);
    const lock = await ours.lock("a", { ttl: LONG, wait: 0 });
    const refused = { code: "STORE_REFUSED", retryable: false };
    for (const client of [wrong, zookeeper]) {
      const theirs = openStore({ root }, client);
      await expect(theirs.tryLock("a", { ttl: LONG })).rejects.toMatchObject(refused);
      await expect(theirs.lock("b", { ttl: LONG, wait: 0 })).rejects.toMatchObject(refused);
      await expect(theirs.inspect("a")).rejects.toMatchObject(refused);
    }
    await using again = as("ann", "right");
    expect(await openStore({ root }, again).tryLock("a", { ttl: LONG })).toBe(undefined);
    expect(await lock.unlock()).toBe("released");
  });
});

test("a store that cannot be reached is told about in seconds", async () => {
  const client = openZooKeeper({ servers: ["127.0.0.1:1"] });
  const store = zookeeperStore(client, { closeZooKeeper: true });
  const refused = { code: "STORE_UNAVAILABLE" };
  await expect(within(8_000, store.tryLock("a", { ttl: 2_000 }))).rejects.toMatchObject(refused);
  await expect(within(8_000, store.inspect("a"))).rejects.toMatchObject(refused);
  await within(2_000, store.close());
});
