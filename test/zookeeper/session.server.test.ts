import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { afterAll, describe, expect, test } from "vitest";
import { zookeeperClient } from "../../core/stores/zookeeper/client/client.ts";
import {
  BadVersionError,
  NodeExistsError,
  NoNodeError,
} from "../../core/stores/zookeeper/client/zookeeper.ts";
import { zookeeperLocks } from "../../core/stores/zookeeper/locks/index.ts";
import { runScript } from "../support/script.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { pause, until, within } from "../support/until.ts";
import { endSession, freshRoot, overhear, singleZooKeeper } from "../support/zookeeper.ts";

const LONG = 20_000;

/** A ttl whose end a test can wait for, and that outlasts the pauses of a busy machine. */
const SHORT = 4_000;

const { servers } = singleZooKeeper();
const [server = ""] = servers;
const port = Number(server.split(":")[1]);
const zookeeper = zookeeperClient({ servers });

afterAll(() => zookeeper.close());

const over = (wire: { readonly port: number }) =>
  zookeeperClient({ servers: [`127.0.0.1:${wire.port}`] });

describe.concurrent("a session", () => {
  test("that another client ends aborts its signal and pending requests at once", async () => {
    await using wire = await overhear(server);
    await using client = over(wire);
    // Longer than the test waits.
    const session = await client.openSession(10 * LONG);
    const { path } = await session.create({ path: `${freshRoot()}`, mode: "ephemeral" });
    await endSession(server, session.owner, await wire.password);
    await until(() => session.signal.aborted);
    expect(session.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
    expect(session.remaining()).toBe(0);
    await expect(session.read(path)).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    expect(await session.renew(new AbortController().signal)).toBeUndefined();
    const other = await zookeeper.openSession(LONG);
    expect(await other.read(path)).toBeUndefined();
  });

  test("lives for longer than its ttl without requests", async () => {
    const session = await zookeeper.openSession(2 * SHORT);
    const { path } = await session.create({ path: freshRoot(), mode: "ephemeral" });
    await pause(3 * SHORT);
    expect(session.signal.aborted).toBe(false);
    expect(session.remaining()).toBeGreaterThan(0);
    expect(await session.read(path)).toBeDefined();
  });

  test("without heartbeats expires, by our clock no later than by the server's", async () => {
    const other = await zookeeper.openSession(LONG);
    const session = await zookeeper.openSession(SHORT);
    const { path } = await session.create({ path: freshRoot(), mode: "ephemeral" });
    session.stopKeepAlive();
    const deleted = Promise.withResolvers<void>();
    await other.read(path, { watch: () => deleted.resolve() });
    await deleted.promise;
    expect(session.remaining()).toBeLessThanOrEqual(0);
  });

  test("whose connection is cut ends by our clock before the server ends it", async () => {
    await using wire = await TcpProxy.to(port);
    await using client = over(wire);
    const other = await zookeeper.openSession(LONG);
    const session = await client.openSession(SHORT);
    const { path } = await session.create({ path: freshRoot(), mode: "ephemeral" });
    await pause(0.6 * SHORT);
    wire.cut();
    const deleted = Promise.withResolvers<void>();
    await other.read(path, { watch: () => deleted.resolve() });
    const pending = session.create({ path: freshRoot() }).catch((error) => error);
    await deleted.promise;
    await pause(0);
    expect(session.signal.aborted).toBe(true);
    // The sent request may have been executed.
    expect(await pending).toMatchObject({ code: expect.stringMatching(/UNKNOWN|EXPIRED/) });
  });

  test("moves to the next connection with its nodes, watches and pending requests", async () => {
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

  test("distinguishes a lost write from one that was not sent", async () => {
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
    const session = await zookeeper.openSession(LONG);
    session.stopKeepAlive();
    await pause(500);
    const before = session.remaining();
    const askedAt = performance.now();
    const grant = await session.restart(new AbortController().signal);
    expect(grant?.sentAt.mono).toBeGreaterThanOrEqual(askedAt);
    expect(session.remaining()).toBeGreaterThan(before);
  });

  test("answers in the order of the requests, and with their errors", async () => {
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

  test("forgets a removed watch, and calls the others once", async () => {
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

  test("opens on any reachable server, also if the caller has to wait for one", async () => {
    const frozen = createServer();
    await once(frozen.listen(0, "127.0.0.1"), "listening");
    const silent = `127.0.0.1:${(frozen.address() as AddressInfo).port}`;
    await using client = zookeeperClient({ servers: ["127.0.0.1:1", silent, server] });
    for (let i = 0; i < 3; i += 1) await client.openSession(SHORT);
    await using nowhere = zookeeperClient({ servers: [silent] });
    const reason = new Error("enough");
    const caller = new AbortController();
    const opening = nowhere.openSession(LONG, caller.signal);
    const outcome = expect(opening).rejects.toBe(reason);
    await pause(50);
    caller.abort(reason);
    await outcome;
    await expect(nowhere.openSession(LONG, AbortSignal.abort(reason))).rejects.toBe(reason);
    frozen.close();
  });

  test("is closed with its client, which leaves no connection open", async () => {
    const client = zookeeperClient({ servers });
    const session = await client.openSession(LONG);
    const { path } = await session.create({ path: freshRoot(), mode: "ephemeral" });
    await client.close();
    expect(session.signal.reason).toMatchObject({ code: "STORE_CLOSED" });
    await expect(client.openSession(LONG)).rejects.toMatchObject({ code: "STORE_CLOSED" });
    const other = await zookeeper.openSession(LONG);
    expect(await other.read(path)).toBeUndefined();
  });

  test("does not keep a process alive after its client is closed, even if its connection is cut", async () => {
    await using wire = await TcpProxy.to(port);
    using script = runScript("zookeeper-once", server, `127.0.0.1:${wire.port}`);
    expect(await script.line()).toBe("begun");
    wire.cut();
    expect(await script.line()).toBe("closed");
    expect(await within(60_000, script.ended)).toBe(0);
  });
});

/** Starts a server that opens a session with this timeout, and then calls `next`. */
async function serving(timeout: number, next: (socket: Socket) => void) {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket
      .on("error", () => {})
      .once("data", () => {
        const answer = Buffer.alloc(41);
        answer.writeInt32BE(answer.length - 4);
        answer.writeInt32BE(timeout, 8);
        answer.writeBigInt64BE(77n, 12);
        answer.writeInt32BE(16, 20);
        socket.write(answer);
        next(socket);
      });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { address, connections: () => connections, [Symbol.dispose]: () => void server.close() };
}

test("a server that closes each connection after it has opened the session is asked with growing pauses", async () => {
  using server = await serving(LONG, (socket) => socket.end());
  await using client = zookeeperClient({ servers: [server.address] });
  await client.openSession(LONG);
  await pause(2_000);
  expect(server.connections()).toBeGreaterThan(2);
  expect(server.connections()).toBeLessThan(20);
});

test("a server that does not accept the user ends the session, and says why", async () => {
  const AUTH_FAILED = -115;
  using server = await serving(LONG, (socket) => {
    const answer = Buffer.alloc(20);
    answer.writeInt32BE(answer.length - 4);
    answer.writeInt32BE(-4, 4);
    answer.writeInt32BE(AUTH_FAILED, 16);
    // As a server does, to the login that follows the opening.
    socket.once("data", () => socket.end(answer));
  });
  await using client = zookeeperClient({ servers: [server.address], user: "ann", password: "b" });
  await using store = zookeeperLocks(client);
  const why = { code: "STORE_REFUSED", message: expect.stringContaining("were not accepted") };
  await expect(store.tryLock("a", { ttl: LONG })).rejects.toMatchObject(why);
  await expect(store.lock("a", { ttl: LONG, wait: LONG })).rejects.toMatchObject(why);
  await expect(store.inspect("a")).rejects.toMatchObject(why);
});

test("no session is opened by a server that answers with an ended one", async () => {
  using server = await serving(0, () => {});
  await using client = zookeeperClient({ servers: [server.address] });
  await expect(client.openSession(LONG)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
});

test("a server with a path, a login or a wrong port is refused", () => {
  for (const server of [
    "zk:2181/app",
    "ann:secret@zk:2181",
    "zk:99999",
    "tcp://zk",
    "a b",
    "::1",
  ]) {
    expect(() => zookeeperClient({ servers: [server] })).toThrow(/must be HOST or HOST:PORT/);
  }
  expect(() => zookeeperClient({ servers: ["ann:secret@zk"] })).not.toThrow(/secret/);
  for (const server of ["zk", "zk.example:2181", "10.0.0.1:2181", "[::1]:2181", "[fe80::1]"]) {
    zookeeperClient({ servers: [server] });
  }
});

test("a user and a password that make no login are refused by name, and never shown", () => {
  const wrong: readonly (readonly [object, RegExp])[] = [
    [{ password: "secret" }, /password .* user/],
    [{ user: undefined, password: "" }, /password .* user/],
    [{ user: "", password: "secret" }, /^user /],
    [{ user: "ann:secret", password: "b" }, /^user .*":"/],
    [{ user: 5, password: "secret" }, /^user /],
    [{ user: "ann", password: 4711 }, /^password /],
  ];
  for (const [login, message] of wrong) {
    const open = () => zookeeperClient({ servers, ...login });
    expect(open).toThrow(message);
    expect(open).not.toThrow(/secret|4711/);
  }
  for (const login of [{}, { user: "ann" }, { user: "ann", password: "b:c" }])
    zookeeperClient({ servers, ...login });
});

test("a server that is not a ZooKeeper server is refused", async () => {
  const refuse = (socket: Socket) =>
    void socket.on("error", () => {}).end("HTTP/1.1 400 Bad Request\r\n\r\n");
  const other = createServer(refuse);
  await once(other.listen(0, "127.0.0.1"), "listening");
  const address = `127.0.0.1:${(other.address() as AddressInfo).port}`;
  await using client = zookeeperClient({ servers: [address] });
  await expect(client.openSession(SHORT)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  expect(() => zookeeperClient({ servers: [] })).toThrow(TypeError);
  other.close();
});

test("the error of servers without a session says why, also when time is up during an attempt", async () => {
  const silentFrom = performance.now() + 4_500;
  const server = createServer((socket) => {
    socket.on("error", () => {});
    if (performance.now() < silentFrom) socket.destroy();
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  await using client = zookeeperClient({ servers: [address] });
  await expect(client.openSession(SHORT)).rejects.toThrow(/opens a session: (?!no answer)/);
  server.close();
});

test("the error of servers without a session says why, and where", async () => {
  await using client = zookeeperClient({ servers: ["127.0.0.1:1"] });
  await expect(client.openSession(SHORT)).rejects.toThrow("connect ECONNREFUSED 127.0.0.1:1");
});
