import { writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import {
  Election,
  type Etcd,
  etcdStore,
  Mutex,
  openEtcd,
  Session,
} from "../../../core/stores/etcd/index.ts";
import { etcdctlEnv, freshPrefix, queueOf } from "../../support/etcd.ts";
import { runCli, runProgram, type Script } from "../../support/script.ts";
import { temporaryFile } from "../../support/under-test.ts";
import { pause, until } from "../../support/until.ts";

const LONG = 30_000;

describe.each(inject("etcdServers"))("etcdctl of $name and this library", (server) => {
  let etcd: Etcd;

  beforeAll(() => {
    etcd = openEtcd(server);
  });

  afterAll(() => etcd.close());

  /** `etcdctl lock NAME` or `etcdctl elect NAME VALUE`: prints its key once it has it, and holds until interrupted. */
  const etcdctl = (...args: readonly string[]) =>
    runProgram(server.etcdctl, args, { env: etcdctlEnv(server.endpoints) });

  const waitersOf = async (prefix: string, count: number) =>
    until(async () => (await queueOf(etcd, prefix)).length === count, 20_000);

  test("wait for each other's locks, in one line, whoever is first", async () => {
    const name = freshPrefix();
    await using session = await Session.open(etcd, { ttl: LONG });
    const mutex = new Mutex(etcd, session, name);
    await mutex.lock();
    using theirs = etcdctl("lock", name);
    await waitersOf(name, 2);
    await using second = await Session.open(etcd, { ttl: LONG });
    const last = new Mutex(etcd, second, name);
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

  test("lock stores have the key of etcdctl for a name without a slash, and wait for it too", async () => {
    const name = freshPrefix();
    await using locks = etcdStore(etcd, { label: "ours" });
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

  test("a name with a slash is no part of another one", async () => {
    const name = freshPrefix();
    await using locks = etcdStore(etcd);
    const inner = await locks.lock(`${name}/b`, { ttl: LONG, wait: 0 });
    const outer = await locks.lock(name, { ttl: LONG, wait: 0 });
    await inner.unlock();
    await outer.unlock();
    // In Go's layout, taken as it is, the outer one waits for the inner one.
    await using one = await Session.open(etcd, { ttl: LONG });
    await using other = await Session.open(etcd, { ttl: LONG });
    const goInner = new Mutex(etcd, one, `${name}/b`);
    const goOuter = new Mutex(etcd, other, name);
    await goInner.lock();
    expect(await goOuter.tryLock()).toBe(false);
    await goInner.unlock();
    expect(await goOuter.tryLock()).toBe(true);
  });

  test("campaign in the same election, whoever leads first", async () => {
    const name = freshPrefix();
    await using session = await Session.open(etcd, { ttl: LONG });
    const election = new Election(etcd, session, name);
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
});
