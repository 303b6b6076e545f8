import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { compareFence } from "../../core/lock/fence.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { Server, ServerNode } from "../../infra/servers/server.ts";
import { runCli, runScript } from "../support/script.ts";
import { pause, until } from "../support/until.ts";

/** A ttl that no pause of a busy machine outlasts. */
const LONG = 20_000;

/** Servers that tests may break, and stores on them. */
export interface BreakableServers {
  start(nodes: 1 | 3): Promise<Server>;
  open(server: Server): LockStore;
}

/** The outages that servers with data on a disk, and on a majority of nodes, survive without harm. */
export function describeOutages({ start, open: openStore }: BreakableServers): void {
  describe("with one node", () => {
    let server: Server;

    beforeAll(async () => {
      server = await start(1);
    });

    afterAll(() => server.stop());

    test("that is killed and restarted keeps its holders and its waiters", async () => {
      const open = storesOf(server, openStore);
      const [ours, theirs, others] = [open(), open(), open()];
      // No restart of a server on a busy machine outlasts the ttl.
      const lock = await ours.lock("restart", { ttl: 3 * LONG, wait: LONG });
      const waiting = theirs.lock("restart", { ttl: 3 * LONG, wait: 6 * LONG });
      await until(async () => (await others.inspect("restart")).waiters === 1);
      await server.nodes[0]?.kill("SIGKILL");
      await pause(500);
      await server.nodes[0]?.start();
      lock.assertHeld();
      // A channel that failed to connect waits before the next attempt.
      await until(() => others.inspect("restart").catch(() => false));
      expect(await others.tryLock("restart", { ttl: LONG })).toBeUndefined();
      expect(await lock.unlock()).toBe("released");
      const next = await waiting;
      expect(compareFence(lock.fence, next.fence)).toBe(-1);
      expect(await next.unlock()).toBe("released");
    });

    test("that is frozen for longer than a ttl leaves no holder that believes to hold", async () => {
      const open = storesOf(server, openStore);
      const [ours, theirs] = [open(), open()];
      const lock = await ours.lock("frozen", { ttl: 4_000, wait: LONG });
      await server.nodes[0]?.kill("SIGSTOP");
      await until(() => lock.signal.aborted);
      await server.nodes[0]?.kill("SIGCONT");
      const next = await theirs.lock("frozen", { ttl: LONG, wait: LONG });
      expect(compareFence(lock.fence, next.fence)).toBe(-1);
      expect(await lock.unlock()).toBe("was-lost");
      next.assertHeld();
    });

    test("frees the lock of a frozen holder, which learns of the loss as soon as it continues", async () => {
      const other = storesOf(server, openStore)();
      const command = ["sh", "-c", "echo started; sleep 60"];
      const { url } = server;
      using holder = runCli("lock", "asleep", "--store", url, "--ttl", "3s", "--", ...command);
      expect(await holder.line()).toBe("started");
      holder.child.kill("SIGSTOP");
      const lock = await other.lock("asleep", { ttl: LONG, wait: LONG });
      holder.child.kill("SIGCONT");
      expect(await holder.ended).toBe(76);
      lock.assertHeld();
      expect(await lock.unlock()).toBe("released");
    });

    test("frees the lock of a process with a blocked event loop, which learns of the loss in the same tick", async () => {
      const other = storesOf(server, openStore)();
      using holder = runScript("block", server.url, "blocked", "3000", "12000");
      await holder.line();
      const lock = await other.lock("blocked", { ttl: LONG, wait: LONG });
      expect(await holder.line()).toBe("LOCK_LOST");
      lock.assertHeld();
    });
  });

  test("with three nodes grants nothing without a majority, and goes on when the majority is back", async () => {
    const server = await start(3);
    onTestFinished(() => server.stop());
    const open = storesOf(server, openStore);
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("job", { ttl: 4_000, wait: LONG });
    const [first, second] = server.nodes as [ServerNode, ServerNode];
    await Promise.all([first.kill("SIGKILL"), second.kill("SIGKILL")]);
    await expect(theirs.lock("other", { ttl: LONG, wait: 0 })).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    await until(() => lock.signal.aborted);
    await Promise.all([first.start(), second.start()]);
    const next = await until(() =>
      theirs.lock("job", { ttl: LONG, wait: LONG }).catch(() => undefined),
    );
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
  });
}

/** Opens stores on a server that the test breaks, and closes them after the test, with all nodes running. */
export function storesOf<Args extends readonly unknown[]>(
  server: Server,
  openStore: (server: Server, ...args: Args) => LockStore,
): (...args: Args) => LockStore {
  const stores: LockStore[] = [];
  onTestFinished(async () => {
    for (const node of server.nodes) await node.kill("SIGCONT");
    await Promise.all(stores.map((store) => store.close()));
  });
  return (...args) => {
    const store = openStore(server, ...args);
    stores.push(store);
    return store;
  };
}
