import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { zookeeperClient } from "../../../core/stores/zookeeper/client/client.ts";
import { zookeeperLocks } from "../../../core/stores/zookeeper/locks/index.ts";
import { faulty } from "../../support/faulty-zookeeper.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { until, within } from "../../support/until.ts";
import { freshRoot, singleZooKeeper } from "../../support/zookeeper.ts";

const LONG = 60_000;

/** Longer than any call with a limit of 2.5 s, shorter than the 10 to 20 s of a call without a limit. */
const LATE = 8_000;

const { servers } = singleZooKeeper();
const port = Number(servers[0]?.split(":")[1]);

describe.concurrent("a server that accepts connections and never answers", () => {
  async function silentServer() {
    const sockets: Socket[] = [];
    const server = createServer(
      (socket) => void sockets.push(socket.on("error", () => {}).resume()),
    );
    await once(server.listen(0, "127.0.0.1"), "listening");
    const { port } = server.address() as AddressInfo;
    return {
      client: zookeeperClient({ servers: [`127.0.0.1:${port}`] }),
      sockets,
      [Symbol.asyncDispose]: async () => void server.close(),
    };
  }

  test("ends each call in time", async () => {
    await using silent = await silentServer();
    await using store = zookeeperLocks(silent.client, { closeZooKeeper: true });
    const told = { code: expect.stringMatching(/^STORE_UNAVAILABLE|^UNKNOWN/) };
    const options = { ttl: LONG, wait: 500 };
    await expect(within(LATE, store.tryLock("a", { ttl: LONG }))).rejects.toMatchObject(told);
    await expect(within(LATE, store.lock("a", options))).rejects.toMatchObject(told);
  });

  test("keeps no connection for more than 2 s after its store is closed", async () => {
    await using silent = await silentServer();
    const store = zookeeperLocks(silent.client, { closeZooKeeper: true });
    const locking = store.lock("a", { ttl: LONG, wait: LONG }).catch((error) => error);
    const ended = until(() => silent.sockets.length > 0).then(async () => {
      const closing = store.close();
      await within(
        LATE,
        until(() => silent.sockets.every(({ closed }) => closed)),
      );
      await closing;
    });
    await ended;
    expect(await locking).toMatchObject({ code: "STORE_CLOSED" });
  });
});

test("the release of another holder's lock ends within 15 s when the server falls silent", async () => {
  const wire = await TcpProxy.to(port);
  const root = freshRoot();
  const holder = zookeeperClient({ servers });
  await using theirs = zookeeperLocks(holder, { root, closeZooKeeper: true });
  await theirs.lock("a", { ttl: LONG, wait: LONG });
  const client = zookeeperClient({ servers: [`127.0.0.1:${wire.port}`] });
  const dark = faulty(client);
  dark.decide = (call) => {
    if (call === "remove") wire.cut();
    return undefined;
  };
  await using ours = zookeeperLocks(dark.zookeeper, { root, closeZooKeeper: true });
  const { fence } = await ours.inspect("a");
  const releasing = ours.release("a", { fence: fence ?? "" });
  // For 10 s, and the last attempt to open a session.
  await expect(within(15_000, releasing)).rejects.toMatchObject({
    code: expect.stringMatching(/^STORE_UNAVAILABLE|^UNKNOWN/),
  });
  await wire.close();
});

test("a session whose server falls silent is closed within 2 s", async () => {
  const wire = await TcpProxy.to(port);
  const client = zookeeperClient({ servers: [`127.0.0.1:${wire.port}`] });
  await client.openSession(LONG);
  wire.cut();
  await within(LATE, client.close());
  await wire.close();
});
