import { writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { stockLock } from "../../../core/inventory/index.ts";
import { etcdClient } from "../../../core/stores/etcd/client/grpc.ts";
import {
  type Etcd,
  EtcdMutex,
  EtcdSession,
  etcdElection,
  openEtcd,
} from "../../../core/stores/etcd/index.ts";
import { etcdInventory } from "../../../core/stores/etcd/inventory/index.ts";
import { etcdLocks } from "../../../core/stores/etcd/locks/index.ts";
import { etcdctlEnv, freshPrefix, queueOf } from "../../support/etcd.ts";
import { runCli, runProgram, type Script } from "../../support/script.ts";
import { temporaryFile } from "../../support/under-test.ts";
import { pause, until } from "../../support/until.ts";

const LONG = 30_000;

describe.each(inject("etcdServers"))("etcdctl of $name and this library", (server) => {
  let etcd: Etcd;

  beforeAll(() => {
    etcd = etcdClient({ endpoints: server.endpoints });
  });

  afterAll(() => etcd.close());

  /** `etcdctl lock NAME` or `etcdctl elect NAME VALUE`: prints its key once it has it, and holds until interrupted. */
  const etcdctl = (...args: readonly string[]) =>
    runProgram(server.etcdctl, args, { env: etcdctlEnv(server.endpoints) });

  const waitersOf = async (prefix: string, count: number) =>
    until(async () => (await queueOf(etcd, prefix)).length === count);

  test("wait for each other's locks in one queue, in either order", async () => {
    const name = freshPrefix();
    await using session = await EtcdSession.open(etcd, { ttl: LONG });
    const mutex = new EtcdMutex(etcd, session, name);
    await mutex.lock();
    using theirs = etcdctl("lock", name);
    await waitersOf(name, 2);
    await using second = await EtcdSession.open(etcd, { ttl: LONG });
    const last = new EtcdMutex(etcd, second, name);
    const locked = last.lock();
    await waitersOf(name, 3);
    let isTheirs = false;
    const line = theirs.line().then((key) => {
      isTheirs = true;
      return key;
    });
    await pause(100);
    expect(isTheirs).toBe(false);
    await mutex.unlock();
    expect(await line).toMatch(new RegExp(`^${name}/[0-9a-f]+$`));
    expect(last.revision).toBeUndefined();
    expect(await mutex.tryLock()).toBe(false);
    theirs.child.kill("SIGINT");
    await locked;
    expect(await last.unlock()).toBe("released");
    expect(await queueOf(etcd, name)).toEqual([]);
  });

  test("lock stores use the key of etcdctl, and wait for it too", async () => {
    const name = freshPrefix();
    await using locks = etcdLocks(etcd, { label: "ours" });
    using theirs = etcdctl("lock", name);
    const key = await theirs.line();
    expect(await locks.tryLock(name, { ttl: LONG })).toBeUndefined();
    expect(await locks.inspect(name)).toMatchObject({
      holder: `lease ${key.split("/").at(-1)}`,
      waiters: 0,
    });
    const waiting = locks.lock(name, { ttl: LONG, wait: LONG });
    await waitersOf(name, 2);
    theirs.child.kill("SIGINT");
    const lock = await waiting;
    using next = etcdctl("lock", name);
    await waitersOf(name, 2);
    expect(await locks.inspect(name)).toMatchObject({
      holder: expect.stringMatching(/^ours\//),
      waiters: 1,
    });
    await lock.unlock();
    expect(await next.line()).toMatch(new RegExp(`^${name}/`));
  });

  test.each(["/NAME/mylock", "NAME/teapot", "NAME//b/", "NAME/50%", "NAME/%2Fb"])(
    "exclude each other on %s, and so do mutexes and lock stores",
    async (pattern) => {
      const name = pattern.replace("NAME", freshPrefix());
      await using session = await EtcdSession.open(etcd, { ttl: LONG });
      const mutex = new EtcdMutex(etcd, session, name);
      await using locks = etcdLocks(etcd);
      await mutex.lock();
      expect(await locks.tryLock(name, { ttl: LONG })).toBeUndefined();
      using theirs = etcdctl("lock", name);
      await waitersOf(name, 2);
      const waiting = locks.lock(name, { ttl: LONG, wait: LONG });
      await waitersOf(name, 3);
      expect(await locks.list(name)).toMatchObject([{ name, waiters: 2 }]);
      await mutex.unlock();
      expect((await theirs.line()).startsWith(`${name}/`)).toBe(true);
      expect(await locks.inspect(name)).toMatchObject({ waiters: 1 });
      expect(await mutex.tryLock()).toBe(false);
      theirs.child.kill("SIGINT");
      const lock = await waiting;
      expect(await mutex.tryLock()).toBe(false);
      await lock.unlock();
      expect(await mutex.tryLock()).toBe(true);
      await mutex.unlock();
    },
  );

  /** Returns a name without a holder, below which etcdctl holds two nested names. */
  const nested = async () => {
    const name = freshPrefix();
    const holders = [etcdctl("lock", `${name}/b`), etcdctl("lock", `${name}/1f/c`)];
    for (const holder of holders) await holder.line();
    const end = () => {
      for (const { child } of holders) child.kill("SIGINT");
    };
    return { name, end, [Symbol.dispose]: end };
  };

  test("lock stores do not wait for the holders of nested names", async () => {
    using outer = await nested();
    const { name } = outer;
    await using locks = etcdLocks(etcd);
    await using others = etcdLocks(etcd, { label: "second" });
    const first = await locks.lock(name, { ttl: LONG, wait: LONG });
    expect(await others.tryLock(name, { ttl: LONG })).toBeUndefined();
    expect(await queueOf(etcd, name)).toHaveLength(3);
    const waiting = others.lock(name, { ttl: LONG, wait: LONG });
    await waitersOf(name, 4);
    const holder = expect.stringMatching(/^etcd\//);
    expect(await locks.inspect(name)).toMatchObject({ name, holder, waiters: 1 });
    expect((await locks.list(name)).map((info) => [info.name, info.waiters])).toEqual([
      [name, 1],
      [`${name}/1f/c`, 0],
      [`${name}/b`, 0],
    ]);
    expect((await locks.list(`${name}/1`)).map((info) => info.name)).toEqual([`${name}/1f/c`]);
    await first.unlock();
    const second = await waiting;
    expect(await locks.tryLock(`${name}/b`, { ttl: LONG })).toBeUndefined();
    await second.unlock();
    const names = [name, `${name}/d`];
    const both = await locks.lockAll(names, { ttl: LONG, wait: LONG });
    for (const wait of [0, 3_000]) {
      const refused = expect.objectContaining({ code: "LOCK_TIMEOUT" });
      await expect(others.lockAll(names, { ttl: LONG, wait })).rejects.toEqual(refused);
    }
    await both.unlock();
  });

  test("mutexes and elections do not wait for the holders of nested names, and etcdctl does", async () => {
    using outer = await nested();
    const { name } = outer;
    await using one = await EtcdSession.open(etcd, { ttl: LONG });
    await using other = await EtcdSession.open(etcd, { ttl: LONG });
    const [first, second] = [one, other].map((session) => new EtcdMutex(etcd, session, name));
    expect(await first?.tryLock()).toBe(true);
    expect(await second?.tryLock()).toBe(false);
    const waiting = second?.lock();
    await waitersOf(name, 4);
    expect(second?.revision).toBeUndefined();
    await first?.unlock();
    await waiting;
    await second?.unlock();
    const election = etcdElection(etcd, one, name);
    expect(await election.leader()).toBeUndefined();
    await election.campaign("ours");
    expect(await election.leader()).toMatchObject({ value: "ours" });
    await election.resign();
    // In Go, a waiter waits for all older keys below its name.
    using theirs = etcdctl("lock", name);
    await waitersOf(name, 3);
    outer.end();
    expect((await theirs.line()).startsWith(`${name}/`)).toBe(true);
  });

  test("guard one stock, also of a sku with a slash", async () => {
    const sku = `${freshPrefix()}/teapot`;
    const stock = etcdInventory(etcd);
    await using locks = etcdLocks(etcd);
    await stock.set({ sku, quantity: 2, operationId: `set ${sku}` });
    const lock = await locks.lock(stockLock(sku), { ttl: LONG, wait: LONG });
    using theirs = etcdctl("lock", stockLock(sku));
    await waitersOf(stockLock(sku), 2);
    const sale = { sku, quantity: 1, operationId: `sell ${sku}`, fence: lock.fence };
    expect(await stock.decrement(sale)).toMatchObject({ outcome: "applied", remaining: 1 });
    await lock.unlock();
    await theirs.line();
    const late = stock.decrement({ ...sale, operationId: `late ${sku}` });
    await expect(late).rejects.toMatchObject({ code: "FENCED_OUT" });
  });

  test("lock stores refuse the names of their own records", async () => {
    await using locks = etcdLocks(etcd);
    for (const name of ["%lockstep", "%lockstep/generation", "a/%lockstep/b"]) {
      await expect(locks.tryLock(name, { ttl: LONG })).rejects.toThrow(RangeError);
      await expect(locks.inspect(name)).rejects.toThrow("%lockstep");
    }
  });

  test("campaign in the same election, in either order", async () => {
    const name = freshPrefix();
    await using session = await EtcdSession.open(etcd, { ttl: LONG });
    const election = etcdElection(etcd, session, name);
    await election.campaign("ours");
    using theirs = etcdctl("elect", name, "theirs");
    await waitersOf(name, 2);
    using listener = etcdctl("elect", "-l", name);
    expect(await listener.line()).toBe(election.key);
    expect(await listener.line()).toBe("ours");
    await election.proclaim("still ours");
    expect(await listener.line()).toBe(election.key);
    expect(await listener.line()).toBe("still ours");
    await election.resign();
    expect(await theirs.line()).toMatch(new RegExp(`^${name}/`));
    expect(await theirs.line()).toBe("theirs");
    expect(await election.leader()).toMatchObject({ value: "theirs" });
    const campaign = election.campaign("ours again");
    await waitersOf(name, 2);
    theirs.child.kill("SIGINT");
    await campaign;
    expect(await election.leader()).toMatchObject({ value: "ours again" });
    await election.resign();
  });

  test("campaign in the same election that a store opens", async () => {
    const name = freshPrefix();
    await using store = await openEtcd({ endpoints: server.endpoints });
    const election = await store.elections.open(name, { ttl: LONG });
    await election.campaign("ours");
    using theirs = etcdctl("elect", name, "theirs");
    await waitersOf(name, 2);
    using listener = etcdctl("elect", "-l", name);
    expect(await listener.line()).toBe(election.key);
    expect(await listener.line()).toBe("ours");
    await election.resign();
    expect(await theirs.line()).toMatch(new RegExp(`^${name}/`));
    expect(await election.leader()).toMatchObject({ value: "theirs", fence: expect.any(String) });
  });

  test.each(["etcdctl", "lockstep"])(
    "`lock NAME` on both command lines, %s first: never both at once",
    async (first) => {
      const name = freshPrefix();
      const url = `etcd://${server.endpoints.join(",")}`;
      const { file, remove } = await temporaryFile();
      const work = `date +%s%N; while [ ! -e ${file} ]; do sleep 0.05; done; sleep 0.2; date +%s%N`;
      const command = ["sh", "-c", work];
      const ours = () => runCli("lock", name, "--store", url, "--wait", "60s", "--", ...command);
      const theirs = () => etcdctl("lock", name, "--", ...command);
      /** When the command began and when it ended. */
      const spanOf = async (program: Script) => {
        const span = [BigInt(await program.line()), BigInt(await program.line())] as const;
        expect(await program.ended).toBe(0);
        return span;
      };
      const [start, next] = first === "etcdctl" ? [theirs, ours] : [ours, theirs];
      using holder = start();
      await waitersOf(name, 1);
      using waiter = next();
      await waitersOf(name, 2);
      await writeFile(file, "");
      const [before, after] = await Promise.all([spanOf(holder), spanOf(waiter)]);
      expect(before[1] <= after[0]).toBe(true);
      await remove();
    },
  );

  test("a command finds the key and the revision of its lock, and they rise from one command line to the other", async () => {
    const name = freshPrefix();
    const url = `etcd://${server.endpoints.join(",")}`;
    const print = ["sh", "-c", "echo $ETCD_LOCK_KEY $ETCD_LOCK_REV"];
    const revisions: bigint[] = [];
    for (const who of ["etcdctl", "lockstep", "etcdctl", "lockstep"]) {
      const lock = ["lock", name, "--", ...print];
      using program =
        who === "etcdctl" ? etcdctl(...lock) : runCli("lock", name, "--store", url, "--", ...print);
      const [key = "", revision = ""] = (await program.line()).split(" ");
      expect(key).toMatch(new RegExp(`^${name}/[0-9a-f]+$`));
      revisions.push(BigInt(revision));
      expect(await program.ended).toBe(0);
    }
    expect(revisions).toEqual([...new Set(revisions)].sort((a, b) => Number(a - b)));
  });
});
