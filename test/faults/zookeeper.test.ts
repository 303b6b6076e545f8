import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { hasCode } from "../../core/lock/errors.ts";
import { compareFence } from "../../core/lock/fence.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { openZooKeeper, zookeeperStore } from "../../core/stores/zookeeper/index.ts";
import type { ServerNode } from "../../infra/servers/node.ts";
import { type Server, startServer } from "../../infra/servers/start.ts";
import { runCli, runScript } from "../support/script.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause, until, within } from "../support/until.ts";
import { partsOf } from "../support/zookeeper.ts";
import { toZooKeeperServer } from "../support/zookeeper-servers.ts";

/** A ttl that no pause of a busy machine outlasts. */
const LONG = 20_000;

/** What is told takes milliseconds. */
const AT_ONCE = 4_000;

/** Stores of a server that the test may break; they are closed after it. */
function storesOf(server: Server) {
  const stores: LockStore[] = [];
  onTestFinished(async () => {
    for (const node of server.nodes) await node.kill("SIGCONT");
    await Promise.all(stores.map((store) => store.close()));
  });
  return (servers = toZooKeeperServer(server).servers) => {
    const store = zookeeperStore(openZooKeeper({ servers }), { closeZooKeeper: true });
    stores.push(store);
    return store;
  };
}

describe("zookeeper", () => {
  let server: Server;

  beforeAll(async () => {
    server = await startServer("zookeeper");
  });

  afterAll(() => server.stop());

  test("that is killed and started again knows who held what, and who waited", async () => {
    const open = storesOf(server);
    const [ours, theirs, others] = [open(), open(), open()];
    const lock = await ours.lock("restart", { ttl: LONG, wait: 0 });
    const waiting = theirs.lock("restart", { ttl: LONG, wait: 2 * LONG });
    await until(async () => (await others.inspect("restart")).waiters === 1);
    await server.nodes[0]?.kill("SIGKILL");
    await pause(500);
    await server.nodes[0]?.start();
    lock.assertHeld();
    expect(await others.tryLock("restart", { ttl: LONG })).toBeUndefined();
    expect(await lock.unlock()).toBe("released");
    const next = await waiting;
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    expect(await next.unlock()).toBe("released");
  });

  test("that is frozen for longer than a ttl leaves no holder in the belief that it holds", async () => {
    const open = storesOf(server);
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("frozen", { ttl: 1_000, wait: 0 });
    await server.nodes[0]?.kill("SIGSTOP");
    await pause(1_500);
    expect(lock.signal.aborted).toBe(true);
    await server.nodes[0]?.kill("SIGCONT");
    const next = await theirs.lock("frozen", { ttl: LONG, wait: LONG });
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
  });

  test("frees the lock of a frozen holder, which knows at once when it wakes up", async () => {
    const other = storesOf(server)();
    const command = ["sh", "-c", "echo started; sleep 60"];
    const { url } = server;
    using holder = runCli("lock", "asleep", "--store", url, "--ttl", "1s", "--", ...command);
    expect(await holder.line()).toBe("started");
    holder.child.kill("SIGSTOP");
    const lock = await other.lock("asleep", { ttl: LONG, wait: LONG });
    holder.child.kill("SIGCONT");
    expect(await within(AT_ONCE, holder.ended)).toBe(76);
    lock.assertHeld();
    expect(await lock.unlock()).toBe("released");
  });

  test("frees the lock of a process whose event loop was blocked, which knows in the same tick", async () => {
    const other = storesOf(server)();
    using holder = runScript("block", server.url, "blocked", "1000", "4000");
    await holder.line();
    const lock = await other.lock("blocked", { ttl: LONG, wait: LONG });
    expect(await holder.line()).toBe("LOCK_LOST");
    lock.assertHeld();
  });
});

describe("zookeeper with three nodes", () => {
  let server: Server;

  beforeAll(async () => {
    server = await startServer("zookeeper-cluster");
  });

  afterAll(() => server.stop());

  const parts = () => until(() => partsOf(server).catch(() => undefined), 30_000);

  test("of which one is killed after the other, the leader too: one holder at a time, and it goes on", async () => {
    const open = storesOf(server);
    const { file, remove } = await temporaryFile();
    await writeFile(file, "0");
    let done = 0;
    let isOver = false;
    // One of them is on the node that is killed, whichever that is.
    const contenders = Array.from({ length: 6 }, async () => {
      const store = open();
      while (!isOver) {
        const lock = await store.lock("counter", { ttl: LONG, wait: LONG }).catch(onlyRetryable);
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
      await Promise.race([working, until(() => done >= before + more, LONG)]);
    };
    for (const part of ["follower", "leader", "follower", "leader"] as const) {
      await goesOn(20);
      const { leader, followers } = await parts();
      const node = part === "leader" ? leader : (followers[0] as ServerNode);
      await node.kill("SIGKILL");
      await goesOn(20);
      await node.start();
    }
    isOver = true;
    await working;
    expect(await readFile(file, "utf8")).toBe(String(done));
    await remove();
  }, 120_000);

  test("goes on when its leader is frozen, and frees what a holder has that dies with it", async () => {
    const open = storesOf(server);
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("leader", { ttl: LONG, wait: 0 });
    const waiting = theirs.lock("leader", { ttl: LONG, wait: 3 * LONG });
    await until(async () => (await ours.inspect("leader")).waiters === 1);
    const { leader: frozen } = await parts();
    await frozen.kill("SIGSTOP");
    expect(await lock.unlock()).toBe("released");
    (await waiting).assertHeld();
    await frozen.kill("SIGCONT");
    expect(await (await waiting).unlock()).toBe("released");

    using holder = runScript("hold", server.url, "leader", "2000");
    await holder.line();
    const last = theirs.lock("leader", { ttl: LONG, wait: 3 * LONG });
    const { leader: killed } = await parts();
    holder.child.kill("SIGKILL");
    await killed.kill("SIGKILL");
    (await last).assertHeld();
    await killed.start();
  }, 120_000);

  test("does not let a holder believe a node that is cut off from its leader and still answers", async () => {
    const { leader, followers } = await parts();
    const follower = followers[0] as ServerNode;
    const [port = 0] = leader.place.peerPorts;
    await using wire = await TcpProxy.to(port);
    await rewire(follower, port, wire.port);
    const open = storesOf(server);
    const [ours, theirs] = [open([`127.0.0.1:${follower.place.port}`]), open()];
    const lock = await ours.lock("cut off", { ttl: 2_000, wait: 0 });
    const waiting = theirs.lock("cut off", { ttl: LONG, wait: LONG });
    // Long enough for heartbeats of which the leader has heard.
    await pause(1_500);
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
  }, 120_000);

  test("that loses its majority grants nothing, and goes on when it is back", async () => {
    const open = storesOf(server);
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("majority", { ttl: 3_000, wait: 0 });
    const [first, second] = server.nodes as [ServerNode, ServerNode];
    await Promise.all([first.kill("SIGKILL"), second.kill("SIGKILL")]);
    await expect(theirs.lock("other", { ttl: LONG, wait: 0 })).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    await until(() => lock.signal.aborted);
    await Promise.all([first.start(), second.start()]);
    const next = await until(
      () => theirs.lock("majority", { ttl: LONG, wait: LONG }).catch(() => undefined),
      60_000,
    );
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
  }, 120_000);
});

/** Starts a node again that reaches its leader over another port. */
async function rewire(node: ServerNode, from: number, to: number): Promise<void> {
  const file = join(node.place.folder, "zoo.cfg");
  await node.kill("SIGKILL");
  await writeFile(file, (await readFile(file, "utf8")).replace(`:${from}:`, `:${to}:`));
  await node.start();
}

/** What a node's death may bring; anything else is a failure. */
function onlyRetryable(error: unknown): undefined {
  if (!hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME", "SESSION_EXPIRED")) throw error;
}
