import { describe, expect, test } from "vitest";
import type { Leader } from "../../../core/lock/election.ts";
import { zookeeperClient } from "../../../core/stores/zookeeper/client/client.ts";
import {
  openZooKeeper,
  type ZooKeeper,
  type ZooKeeperSession,
  zookeeperElection,
} from "../../../core/stores/zookeeper/index.ts";
import { childrenBefore, newNodePrefix } from "../../../core/stores/zookeeper/locks/queue.ts";
import { runScript } from "../../support/script.ts";
import { pause, until, within } from "../../support/until.ts";
import { contendersOf, freshRoot, singleZooKeeper } from "../../support/zookeeper.ts";
import {
  admin,
  clients,
  connectBeforeTests,
  LONG,
  openStore,
  SHORT,
  zookeeper,
} from "./clients.ts";

const { servers } = singleZooKeeper();

connectBeforeTests();

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

test("a lock that is held for longer than its ttl stays at the head of its queue", async () => {
  const { root, ours, theirs } = clients();
  const all = await ours.lockAll(["a", "b"], { ttl: SHORT, wait: LONG });
  const waiting = theirs.lock("a", { ttl: LONG, wait: LONG });
  await until(async () => (await contendersOf(admin, `${root}/a`)).length === 2);
  const [before] = await contendersOf(admin, `${root}/a`);
  await all.ensure(3 * SHORT);
  all.assertHeld(SHORT);
  expect((await contendersOf(admin, `${root}/a`))[0]).toBe(before);
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
  const [before = ""] = await contendersOf(admin, `${root}/a`);
  await first.unlock();
  // ZooKeeper deletes containers that are empty.
  await until(async () => (await admin.children(`${root}/a`)) === undefined);
  const second = await ours.lock("a", { ttl: LONG, wait: LONG });
  const [after = ""] = await contendersOf(admin, `${root}/a`);
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
  expect(await contendersOf(admin, queue)).toEqual(made);
  for (const name of [...made, "no-number"]) await admin.remove(`${queue}/${name}`);
});

test("sequence numbers of nine digits and a minus are those of contenders", async () => {
  const { root, ours, theirs } = clients();
  const queue = `${root}/a`;
  await (await ours.lock("a", { ttl: LONG, wait: LONG })).unlock();
  const prefix = newNodePrefix();
  const made = ["-1000000000", "-999999999", "-000000001", "0000000000"].map((n) => prefix + n);
  const [first = "", second = "", third = "", last = ""] = made;
  // Java writes a number with ten characters at least, its minus included.
  await admin.create({ path: `${queue}/${second}`, mode: "ephemeral" });
  expect(await theirs.tryLock("a", { ttl: LONG })).toBeUndefined();
  for (const name of [last, third, first])
    await admin.create({ path: `${queue}/${name}`, mode: "ephemeral" });
  expect(await contendersOf(admin, queue)).toEqual(made);
  expect(childrenBefore(made, third)).toEqual([first, second]);
  for (const name of made) await admin.remove(`${queue}/${name}`);
});

test("nested names are separate locks, also if a segment ends in ten digits", async () => {
  const { root, ours, theirs } = clients();
  const options = { ttl: LONG, wait: LONG };
  const names = [
    "a/b",
    "a/1700000000",
    "a/x-123456789",
    "a/b/0000000000",
    "a/",
    "/a",
    "a",
    "a/b/./c",
  ];
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

test("an election at a path that ZooKeeper does not take is refused, with the path", () => {
  for (const path of ["/a/..", "/./a", "/a//b", "/a/", "a", "/a\u0001b", "/\u{1f600}"]) {
    const message = `path ${JSON.stringify(path)} must be`;
    expect(() => zookeeperElection(admin, path)).toThrow(message);
  }
  for (const path of ["/a", "/a/b.c", "/..a"]) zookeeperElection(admin, path);
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

test("locks with ttls of the same second share a session, which lasts for that second", async () => {
  const { client, sessions } = keeping();
  const root = freshRoot();
  const store = openStore({ root }, client);
  for (let less = 0; less < 20; less += 1) {
    const lock = await store.lock("a", { ttl: LONG - less, wait: LONG });
    expect((await store.inspect("a")).expiresIn).toBe(LONG);
    await lock.unlock();
  }
  // The other one is that of `inspect`.
  expect(sessions.map(({ ttl }) => ttl).sort()).toEqual([10_000, LONG]);
});

test("a store keeps eight idle sessions, the last used ones", async () => {
  const { client, sessions } = keeping();
  const store = openStore({ root: freshRoot() }, client);
  const lock = async (seconds: number) =>
    (await store.lock("a", { ttl: 1_000 * seconds, wait: LONG })).unlock();
  const held = await store.lock("held", { ttl: LONG, wait: LONG });
  for (let seconds = 21; seconds <= 30; seconds += 1) {
    await lock(seconds);
    await lock(21);
  }
  const living = () =>
    sessions.filter(({ signal }) => !signal.aborted).map(({ ttl }) => ttl / 1_000);
  await within(
    20_000,
    until(() => living().length <= 9),
  );
  expect(living()).toEqual([20, 21, 24, 25, 26, 27, 28, 29, 30]);
  held.assertHeld();
  await held.unlock();
});

test.each(["holder", "leader", "session"])(
  "what a process has in ZooKeeper does not keep it alive: a %s",
  async (kind) => {
    using script = runScript("wait-in-zookeeper", kind, ...servers, freshRoot());
    expect(await script.line()).toBe("goes on");
    expect(await within(20_000, script.ended)).toBe(0);
  },
);

test.each(["lock", "candidate", "observer"])(
  "a process that waits in ZooKeeper stays alive until it has what it waits for: a %s",
  async (kind) => {
    const root = freshRoot();
    await using store = await openZooKeeper({ servers }, { root });
    const election = await store.elections.open("a");
    await election.campaign("first");
    using script = runScript("wait-in-zookeeper", kind, ...servers, root);
    expect(await script.line()).toBe("goes on");
    // Nothing but the wait keeps the process alive for so long.
    await pause(6_000);
    if (kind === "observer") await election.proclaim("next");
    else await election.resign();
    expect(await script.line()).toBe("has it");
    expect(await script.ended).toBe(0);
  },
);

test("a lock that is not renewed starts with its whole ttl after a wait, without heartbeats", async () => {
  const { client, sessions } = keeping();
  const root = freshRoot();
  const [ours, theirs] = [openStore({ root }, client), openStore({ root })];
  const ttl = 4_000;
  const holder = await theirs.lock("a", { ttl: LONG, wait: LONG });
  const waiting = ours.lock("a", { ttl, wait: LONG, renew: false });
  await until(async () => (await contendersOf(admin, `${root}/a`)).length === 2);
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
