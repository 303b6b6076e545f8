import { dirname, join } from "node:path";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { put } from "../../core/etcd/etcd.ts";
import { compareFence } from "../../core/lock/fence.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { etcdStore, openEtcd } from "../../core/stores/etcd/index.ts";
import type { ServerNode } from "../../infra/servers/node.ts";
import { type StartOptions, startServer } from "../../infra/servers/start.ts";
import { etcdctl, leaderOf } from "../support/etcd.ts";
import { type EtcdServer, endpointsOf, QUICK_ETCD } from "../support/etcd-servers.ts";
import { runCli, runScript } from "../support/script.ts";
import { pause, until, within } from "../support/until.ts";

/** A ttl that no pause of a busy machine outlasts. */
const LONG = 20_000;

/** What is told takes milliseconds. */
const AT_ONCE = 4_000;

/** One of each version: clusters are started here, and broken. */
const versions = inject("etcdServers").filter(({ endpoints }) => endpoints.length === 1);

describe.each(versions)("$name", (known) => {
  /** A server of this version that the test may break, and clients of it. */
  const start = async (kind: "etcd" | "etcd-cluster", args: StartOptions["args"] = []) => {
    const binary = join(dirname(known.etcdctl), "etcd");
    const server = await startServer(kind, { binary, args: [...QUICK_ETCD[kind], ...args] });
    const clients: LockStore[] = [];
    onTestFinished(async () => {
      for (const node of server.nodes) await node.kill("SIGCONT");
      await Promise.all(clients.map((client) => client.close()));
      await server.stop();
    });
    const endpoints = endpointsOf(server);
    const open = () => {
      const client = etcdStore(openEtcd({ endpoints }), { closeEtcd: true });
      clients.push(client);
      return client;
    };
    const about: EtcdServer = { ...known, url: server.url, endpoints };
    return { server, open, about };
  };

  test("that is killed and started again knows who held what, and who waited", async () => {
    const { server, open } = await start("etcd");
    const [ours, theirs, others] = [open(), open(), open()];
    const lock = await ours.lock("job", { ttl: LONG, wait: 0 });
    const waiting = theirs.lock("job", { ttl: LONG, wait: 2 * LONG });
    await until(async () => (await others.inspect("job")).waiters === 1);
    await server.nodes[0]?.kill("SIGKILL");
    await pause(500);
    await server.nodes[0]?.start();
    lock.assertHeld();
    // A channel that could not connect waits a little before it tries again.
    await until(() => others.inspect("job").catch(() => false));
    expect(await others.tryLock("job", { ttl: LONG })).toBeUndefined();
    expect(await lock.unlock()).toBe("released");
    const next = await waiting;
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    expect(await next.unlock()).toBe("released");
  });

  test("that is frozen for longer than a ttl leaves no holder in the belief that it holds", async () => {
    const { server, open } = await start("etcd");
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("job", { ttl: 2_000, wait: 0 });
    await server.nodes[0]?.kill("SIGSTOP");
    await pause(2_500);
    expect(lock.signal.aborted).toBe(true);
    await server.nodes[0]?.kill("SIGCONT");
    const next = await theirs.lock("job", { ttl: LONG, wait: LONG });
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
  });

  test("frees the lock of a frozen holder, which knows at once when it wakes up", async () => {
    const { server, open } = await start("etcd");
    const command = ["sh", "-c", "echo started; sleep 60"];
    using holder = runCli("lock", "job", "--store", server.url, "--ttl", "1s", "--", ...command);
    const other = open();
    expect(await holder.line()).toBe("started");
    holder.child.kill("SIGSTOP");
    const lock = await other.lock("job", { ttl: LONG, wait: LONG });
    holder.child.kill("SIGCONT");
    expect(await within(AT_ONCE, holder.ended)).toBe(76);
    lock.assertHeld();
    expect(await lock.unlock()).toBe("released");
  });

  test("frees the lock of a process whose event loop was blocked, which knows in the same tick", async () => {
    const { server, open } = await start("etcd");
    using holder = runScript("block", server.url, "job", "1000", "4000");
    await holder.line();
    const lock = await open().lock("job", { ttl: LONG, wait: LONG });
    expect(await holder.line()).toBe("LOCK_LOST");
    lock.assertHeld();
  });

  test("tells the holder at once when its lease is revoked", async () => {
    const { open, about } = await start("etcd");
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("job", { ttl: LONG, wait: 0 });
    await pause(100);
    const [lease = ""] = (await etcdctl(about, "lease", "list")).match(/^[0-9a-f]{8,}$/m) ?? [];
    await etcdctl(about, "lease", "revoke", lease);
    await until(() => lock.signal.aborted, AT_ONCE);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST" });
    const next = await theirs.lock("job", { ttl: LONG, wait: 0 });
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
    // And the same client goes on, with another lease.
    await next.unlock();
    expect(await (await ours.lock("job", { ttl: LONG, wait: 0 })).unlock()).toBe("released");
  });

  test("whose quota is used up lets locks be given back, and refuses new ones with advice", async () => {
    const { open, about } = await start("etcd", ["--quota-backend-bytes=3000000"]);
    const client = open();
    const held = await client.lock("held", { ttl: LONG, wait: 0 });
    const etcd = openEtcd(about);
    const value = "x".repeat(500_000);
    const full = await until(async () =>
      etcd.txn({ when: [], do: [put("junk", value)] }).then(
        () => false as const,
        (error) => error,
      ),
    );
    expect(full).toMatchObject({ code: "STORE_REFUSED" });
    const refused = { code: "STORE_REFUSED", message: expect.stringContaining("defragment") };
    await expect(client.lock("new", { ttl: LONG, wait: 0 })).rejects.toMatchObject(refused);
    await expect(client.lock("new", { ttl: 2 * LONG, wait: 0 })).rejects.toMatchObject(refused);
    expect(await held.unlock()).toBe("released");
    const { revision } = await etcd.range({ op: "get", keys: "junk" });
    await etcdctl(about, "compact", String(revision));
    await etcdctl(about, "defrag");
    await etcdctl(about, "alarm", "disarm");
    const next = await client.lock("held", { ttl: LONG, wait: 0 });
    expect(await next.unlock()).toBe("released");
    await etcd.close();
  });

  test("with three nodes goes on when its leader is frozen, moved, or killed together with a holder", async () => {
    const { server, open, about } = await start("etcd-cluster");
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("job", { ttl: LONG, wait: 0 });
    const waiting = theirs.lock("job", { ttl: LONG, wait: 3 * LONG });
    const frozen = await leaderOf(server, about);
    await frozen.kill("SIGSTOP");
    await pause(3_000);
    expect(await lock.unlock()).toBe("released");
    const next = await waiting;
    await frozen.kill("SIGCONT");
    next.assertHeld();

    const leader = await until(() => leaderOf(server, about).catch(() => undefined));
    const members = await etcdctl(about, "member", "list", "--write-out=json");
    const ids = members.match(/"ID":(\d+)/g)?.map((id) => BigInt(id.slice(5))) ?? [];
    const at = { ...about, endpoints: [`127.0.0.1:${leader.place.port}`] };
    const status = await etcdctl(at, "endpoint", "status", "--write-out=json");
    const [, leading = ""] = /"leader":(\d+)/.exec(status) ?? [];
    const follower = ids.find((id) => id !== BigInt(leading)) ?? 0n;
    await etcdctl(at, "move-leader", follower.toString(16));
    expect(await next.unlock()).toBe("released");

    using holder = runScript("hold", server.url, "job", "2000");
    await holder.line();
    const last = theirs.lock("job", { ttl: LONG, wait: 3 * LONG });
    const killed = await until(() => leaderOf(server, about).catch(() => undefined));
    holder.child.kill("SIGKILL");
    await killed.kill("SIGKILL");
    (await last).assertHeld();
    await killed.start();
  }, 120_000);

  test("with three nodes that loses its majority grants nothing, and goes on when it is back", async () => {
    const { server, open } = await start("etcd-cluster");
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("job", { ttl: 3_000, wait: 0 });
    const [first, second] = server.nodes as [ServerNode, ServerNode];
    await Promise.all([first.kill("SIGKILL"), second.kill("SIGKILL")]);
    await expect(theirs.lock("other", { ttl: LONG, wait: 0 })).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    await until(() => lock.signal.aborted);
    await Promise.all([first.start(), second.start()]);
    const next = await until(
      () => theirs.lock("job", { ttl: LONG, wait: LONG }).catch(() => undefined),
      60_000,
    );
    expect(compareFence(lock.fence, next.fence)).toBe(-1);
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
  }, 120_000);
});
