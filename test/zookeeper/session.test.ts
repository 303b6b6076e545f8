import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { afterAll, describe, expect, test } from "vitest";
import { elapsedSince } from "../../core/lock/time.ts";
import { openZooKeeper } from "../../core/zookeeper/client.ts";
import { BadVersionError, NodeExistsError, NoNodeError } from "../../core/zookeeper/zookeeper.ts";
import { runScript } from "../support/script.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { pause, until, within } from "../support/until.ts";
import { endSession, freshRoot, overhear, singleZooKeeper } from "../support/zookeeper.ts";

const LONG = 20_000;

/** What is told takes milliseconds. */
const AT_ONCE = 4_000;

const { servers } = singleZooKeeper();
const [server = ""] = servers;
const port = Number(server.split(":")[1]);
const zookeeper = openZooKeeper({ servers });

afterAll(() => zookeeper.close());

const over = (wire: { readonly port: number }) =>
  openZooKeeper({ servers: [`127.0.0.1:${wire.port}`] });

describe.concurrent("a session", () => {
  test("that somebody else ends is told at once, and so is who waits for an answer", async () => {
    await using wire = await overhear(server);
    await using client = over(wire);
    const session = await client.openSession(LONG);
    const { path } = await session.create({ path: `${freshRoot()}`, mode: "ephemeral" });
    await endSession(server, session.owner, await wire.password);
    await until(() => session.signal.aborted, AT_ONCE);
    expect(session.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
    expect(session.remaining()).toBe(0);
    await expect(session.read(path)).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    expect(await session.renew(new AbortController().signal)).toBeUndefined();
    const other = await zookeeper.openSession(LONG);
    expect(await other.read(path)).toBeUndefined();
  });

  test("lives for many times its ttl while nobody asks for anything", async () => {
    const session = await zookeeper.openSession(1_000);
    const { path } = await session.create({ path: freshRoot(), mode: "ephemeral" });
    await pause(3_500);
    expect(session.signal.aborted).toBe(false);
    expect(session.remaining()).toBeGreaterThan(0);
    expect(await session.read(path)).toBeDefined();
  });

  test("that rests ends by itself, by our clock no later than by the server's", async () => {
    const other = await zookeeper.openSession(LONG);
    const session = await zookeeper.openSession(1_000);
    const { path } = await session.create({ path: freshRoot(), mode: "ephemeral" });
    session.rest();
    const deleted = Promise.withResolvers<void>();
    await other.read(path, { watch: () => deleted.resolve() });
    await deleted.promise;
    expect(session.remaining()).toBeLessThanOrEqual(0);
  });

  test("whose wire is cut ends by our clock before the server ends it", async () => {
    await using wire = await TcpProxy.to(port);
    await using client = over(wire);
    const other = await zookeeper.openSession(LONG);
    const session = await client.openSession(1_000);
    const { path } = await session.create({ path: freshRoot(), mode: "ephemeral" });
    await pause(600);
    wire.cut();
    const deleted = Promise.withResolvers<void>();
    await other.read(path, { watch: () => deleted.resolve() });
    const pending = session.create({ path: freshRoot() }).catch((error) => error);
    await deleted.promise;
    await pause(0);
    expect(session.signal.aborted).toBe(true);
    // What was sent may have happened.
    expect(await pending).toMatchObject({ code: expect.stringMatching(/UNKNOWN|EXPIRED/) });
  });

  test("moves on to the next connection with its nodes, its watches and the questions under way", async () => {
    await using wire = await TcpProxy.to(port);
    await using client = over(wire);
    const session = await client.openSession(LONG);
    const { path } = await session.create({ path: freshRoot(), mode: "ephemeral", data: "mine" });
    let told = 0;
    await session.read(path, {
      watch: () => {
        told += 1;
      },
    });
    wire.loseNextAnswer();
    const [node, ...others] = await Promise.all([
      session.read(path),
      ...Array.from({ length: 500 }, () => session.children(path)),
    ]);
    expect(node?.data).toBe("mine");
    expect(node?.stat.owner).toBe(session.owner);
    expect(others.every((children) => children?.length === 0)).toBe(true);
    expect(told).toBe(1);
    expect(wire.connections).toBe(2);
  });

  test("tells a write that was lost from one that was not sent", async () => {
    await using wire = await TcpProxy.to(port);
    await using client = over(wire);
    const session = await client.openSession(LONG);
    const path = freshRoot();
    wire.loseNextAnswer();
    await expect(session.create({ path })).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    await expect(session.create({ path })).rejects.toThrow(NodeExistsError);
    await wire.close();
    await until(async () => {
      const signal = AbortSignal.timeout(100);
      const error = await session
        .create({ path: `${path}/a`, mode: "ephemeral" }, signal)
        .catch((e) => e);
      return error === signal.reason;
    });
  });

  test("starts its ttl anew on a new connection", async () => {
    const session = await zookeeper.openSession(4_000);
    session.rest();
    await pause(500);
    const before = session.remaining();
    const grant = await session.reattach(new AbortController().signal);
    expect(grant && elapsedSince(grant.sentAt)).toBeLessThan(500);
    expect(session.remaining()).toBeGreaterThan(before);
  });

  test("answers in the order of the questions, and with what went wrong", async () => {
    const session = await zookeeper.openSession(LONG);
    const root = freshRoot();
    const [, made, children, missing] = await Promise.all([
      session.create({ path: root }),
      session.create({ path: `${root}/a-`, mode: "sequential" }),
      session.children(root),
      session.read(`${root}/b`),
    ]);
    expect(children?.map((name) => `${root}/${name}`)).toEqual([made.path]);
    expect(missing).toBeUndefined();
    const { version } = await session.write(root, "é🔒");
    expect((await session.read(root))?.data).toBe("é🔒");
    await expect(session.write(root, "x", { version: version + 1 })).rejects.toThrow(
      BadVersionError,
    );
    await expect(session.remove(`${root}/b`)).rejects.toThrow(NoNodeError);
    await expect(session.remove(root)).rejects.toMatchObject({ code: "STORE_REFUSED" });
    await expect(session.create({ path: "no path" })).rejects.toMatchObject({
      code: "STORE_REFUSED",
    });
    const ops = [
      { op: "write", path: root, data: "y" },
      { op: "remove", path: `${root}/b` },
    ] as const;
    await expect(session.multi(ops)).rejects.toThrow(NoNodeError);
    expect((await session.read(root))?.data).toBe("é🔒");
  });

  test("forgets a watch that is taken back, and calls the others once", async () => {
    const session = await zookeeper.openSession(LONG);
    const { path } = await session.create({ path: freshRoot() });
    const told: string[] = [];
    const watches = ["kept", "taken back"].map((name) => () => void told.push(name));
    for (const watch of watches) await session.read(path, { watch });
    session.unwatch(path, watches[1] ?? (() => {}));
    await session.write(path, "1");
    await session.write(path, "2");
    await session.sync();
    expect(told).toEqual(["kept"]);
  });

  test("is opened on whichever server is there, and by whoever waits long enough", async () => {
    const frozen = createServer();
    await once(frozen.listen(0, "127.0.0.1"), "listening");
    const silent = `127.0.0.1:${(frozen.address() as AddressInfo).port}`;
    await using client = openZooKeeper({ servers: ["127.0.0.1:1", silent, server] });
    for (let i = 0; i < 3; i += 1) await within(AT_ONCE, client.openSession(1_000));
    await using nowhere = openZooKeeper({ servers: [silent] });
    const reason = new Error("enough");
    const caller = new AbortController();
    const opening = within(1_000, nowhere.openSession(LONG, caller.signal));
    const outcome = expect(opening).rejects.toBe(reason);
    await pause(50);
    caller.abort(reason);
    await outcome;
    await expect(nowhere.openSession(LONG, AbortSignal.abort(reason))).rejects.toBe(reason);
    frozen.close();
  });

  test("is closed with its client, which lets go of everything", async () => {
    const client = openZooKeeper({ servers });
    const session = await client.openSession(LONG);
    const { path } = await session.create({ path: freshRoot(), mode: "ephemeral" });
    await client.close();
    expect(session.signal.reason).toMatchObject({ code: "STORE_CLOSED" });
    await expect(client.openSession(LONG)).rejects.toMatchObject({ code: "STORE_CLOSED" });
    const other = await zookeeper.openSession(LONG);
    expect(await other.read(path)).toBeUndefined();
  });

  test("does not keep a process alive once its client is closed, even with its wire cut", async () => {
    await using wire = await TcpProxy.to(port);
    using script = runScript("zookeeper-once", server, `127.0.0.1:${wire.port}`);
    expect(await script.line()).toBe("begun");
    wire.cut();
    expect(await script.line()).toBe("closed");
    expect(await within(10_000, script.ended)).toBe(0);
  });
});

test("what is no ZooKeeper server is no server", async () => {
  const other = createServer((socket) => void socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
  await once(other.listen(0, "127.0.0.1"), "listening");
  const address = `127.0.0.1:${(other.address() as AddressInfo).port}`;
  await using client = openZooKeeper({ servers: [address] });
  await expect(client.openSession(1_000)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  expect(() => openZooKeeper({ servers: [] })).toThrow(TypeError);
  other.close();
});
