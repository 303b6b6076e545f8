import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasCode } from "../../core/lock/errors.ts";
import { compareFence } from "../../core/lock/fence.ts";
import { zookeeperClient } from "../../core/stores/zookeeper/client/client.ts";
import { zookeeperLocks } from "../../core/stores/zookeeper/locks/index.ts";
import type { Server, ServerNode } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { describeOutages, storesOf } from "../conformance/outages.ts";
import { WHOLE_MATRIX } from "../support/matrix.ts";
import { runScript } from "../support/script.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";
import { partsOf } from "../support/zookeeper.ts";
import { toZooKeeperServer } from "../support/zookeeper-servers.ts";

/** A ttl that is longer than any pause of a busy machine. */
const LONG = 20_000;

/** A wait that is longer than any election on a busy machine. */
const PATIENCE = 120_000;

const openStore = (server: Server, servers = toZooKeeperServer(server).servers) =>
  zookeeperLocks(zookeeperClient({ servers }), { closeZooKeeper: true });

describe("zookeeper", () => {
  describeOutages({
    start: (nodes) => startServer(nodes === 1 ? "zookeeper" : "zookeeper-cluster"),
    open: (server) => openStore(server),
  });
});

describe.runIf(WHOLE_MATRIX)("zookeeper with three nodes", () => {
  let server: Server;

  beforeAll(async () => {
    server = await startServer("zookeeper-cluster");
  });

  afterAll(() => server.stop());

  const parts = () => until(() => partsOf(server).catch(() => undefined));

  test("grants one holder at a time while one node after the other is killed, the leader too", async () => {
    const open = storesOf(server, openStore);
    const { file, remove } = await temporaryFile();
    await writeFile(file, "0");
    let done = 0;
    let isOver = false;
    // One of the clients is connected to the killed node, whichever that is.
    const contenders = Array.from({ length: 6 }, async () => {
      const store = open();
      while (!isOver) {
        const lock = await store
          .lock("counter", { ttl: LONG, wait: PATIENCE })
          .catch(onlyRetryable);
        if (!lock) continue;
        const count = Number(await readFile(file, "utf8"));
        await writeFile(file, String(count + 1));
        lock.assertHeld();
        done += 1;
        await lock.unlock().catch(onlyRetryable);
      }
    });
    const working = Promise.all(contenders);
    const goesOn = async (more: number) => {
      const before = done;
      await Promise.race([working, until(() => done >= before + more)]);
    };
    for (const part of ["follower", "leader", "follower", "leader"] as const) {
      await goesOn(20);
      const { leader, followers } = await parts();
      const node = part === "leader" ? leader : (followers[0] as ServerNode);
      await node.kill("SIGKILL");
      await goesOn(20);
      // ZooKeeper 3.8.0 can lose confirmed changes on a node that rejoins with what it had.
      await rm(join(node.config.folder, "data", "version-2"), { recursive: true });
      await node.start();
    }
    isOver = true;
    await working;
    expect(await readFile(file, "utf8")).toBe(String(done));
    await remove();
  });

  test("continues when its leader is frozen, and releases the lock of a holder that dies with it", async () => {
    const open = storesOf(server, openStore);
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("leader", { ttl: PATIENCE, wait: PATIENCE });
    const waiting = theirs.lock("leader", { ttl: LONG, wait: PATIENCE });
    await until(async () => (await ours.inspect("leader")).waiters === 1);
    const { leader: frozen } = await parts();
    await frozen.kill("SIGSTOP");
    // An election may take longer than one release waits.
    expect(await until(() => lock.unlock().catch(onlyRetryable))).toBe("released");
    (await waiting).assertHeld();
    await frozen.kill("SIGCONT");
    expect(await (await waiting).unlock()).toBe("released");

    using holder = runScript("hold", server.url, "leader", "2000");
    await holder.line();
    const last = theirs.lock("leader", { ttl: LONG, wait: PATIENCE });
    const { leader: killed } = await parts();
    holder.child.kill("SIGKILL");
    await killed.kill("SIGKILL");
    (await last).assertHeld();
    await killed.start();
  });

  test("aborts the signal of a holder whose node still answers but is cut off from the leader", async () => {
    const { leader, followers } = await parts();
    const follower = followers[0] as ServerNode;
    const [port = 0] = leader.config.peerPorts;
    await using wire = await TcpProxy.to(port);
    await rewire(follower, port, wire.port);
    const open = storesOf(server, openStore);
    const [ours, theirs] = [open([`127.0.0.1:${follower.config.port}`]), open()];
    const lock = await ours.lock("cut off", { ttl: 6_000, wait: PATIENCE });
    const waiting = theirs.lock("cut off", { ttl: LONG, wait: PATIENCE });
    // Long enough for heartbeats that the leader gets.
    await pause(4_500);
    lock.assertHeld();
    let lostAt = Number.POSITIVE_INFINITY;
    lock.signal.addEventListener("abort", () => {
      lostAt = performance.now();
    });
    wire.cut();
    const next = await waiting;
    await pause(0);
    expect(lostAt).toBeLessThanOrEqual(performance.now());
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    wire.mend();
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
    await rewire(follower, wire.port, port);
  });
});

/** Restarts a node so that it reaches its leader over another port. */
async function rewire(node: ServerNode, from: number, to: number): Promise<void> {
  const file = join(node.config.folder, "zoo.cfg");
  await node.kill("SIGKILL");
  await writeFile(file, (await readFile(file, "utf8")).replace(`:${from}:`, `:${to}:`));
  await node.start();
}

/** The errors that the death of a node may cause; any other one is a failure. */
function onlyRetryable(error: unknown): undefined {
  if (!hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME", "SESSION_EXPIRED")) throw error;
}
