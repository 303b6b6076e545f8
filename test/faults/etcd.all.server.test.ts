import { dirname, join } from "node:path";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { put } from "../../core/stores/etcd/client/etcd.ts";
import { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { describeOutages, storesOf } from "../conformance/outages.ts";
import { etcdctl, leaderOf } from "../support/etcd.ts";
import { type EtcdServer, endpointsOf, QUICK_ETCD } from "../support/etcd-servers.ts";
import { longTestTransports } from "../support/etcd-under-test.ts";
import { runScript } from "../support/script.ts";
import { pause, until } from "../support/until.ts";

/** A ttl that is longer than any pause of a busy machine. */
const LONG = 20_000;

/** The longest time until a notification; most take milliseconds. */
const AT_ONCE = 12_000;

/** One server of each version; the tests start clusters of their own, and break them. */
const versions = inject("etcdServers").filter(({ endpoints }) => endpoints.length === 1);

const transports = await longTestTransports();

const cases = versions.flatMap((version) =>
  transports.map((transport) => ({ ...version, ...transport })),
);

describe.each(cases)("$name over $transport", ({ openClient, ...known }) => {
  const binary = join(dirname(known.etcdctl), "etcd");
  const start = (kind: keyof typeof QUICK_ETCD, args: readonly string[] = []) =>
    startServer(kind, { binary, args: [...QUICK_ETCD[kind], ...args] });
  const openStore = (server: Server) =>
    etcdLocks(openClient({ endpoints: endpointsOf(server) }), { closeEtcd: true });

  /** Starts a server of this version that the test may break, and clients of it. */
  const broken = async (...starting: Parameters<typeof start>) => {
    const server = await start(...starting);
    onTestFinished(() => server.stop());
    const about: EtcdServer = { ...known, url: server.url, endpoints: endpointsOf(server) };
    return { server, open: storesOf(server, openStore), about };
  };

  describeOutages({
    start: (nodes) => start(nodes === 1 ? "etcd" : "etcd-cluster"),
    open: openStore,
  });

  test("aborts the signal of a holder at once when its lease is revoked", async () => {
    const { open, about } = await broken("etcd");
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("job", { ttl: LONG, wait: LONG });
    await pause(100);
    const [lease = ""] = (await etcdctl(about, "lease", "list")).match(/^[0-9a-f]{8,}$/m) ?? [];
    await etcdctl(about, "lease", "revoke", lease);
    await until(() => lock.signal.aborted, AT_ONCE);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST" });
    const next = await theirs.lock("job", { ttl: LONG, wait: LONG });
    expect(await lock.unlock()).toBe("was-lost");
    next.assertHeld();
    // The same client continues with another lease.
    await next.unlock();
    expect(await (await ours.lock("job", { ttl: LONG, wait: LONG })).unlock()).toBe("released");
  });

  test("whose quota is used up accepts releases of locks, and refuses new locks with advice", async () => {
    const { open, about } = await broken("etcd", ["--quota-backend-bytes=3000000"]);
    const client = open();
    const held = await client.lock("held", { ttl: LONG, wait: LONG });
    const etcd = openClient({ endpoints: about.endpoints });
    const value = "x".repeat(500_000);
    const full = await until(async () =>
      etcd.txn({ when: [], do: [put("junk", value)] }).then(
        () => false as const,
        (error) => error,
      ),
    );
    const message = expect.stringContaining("defragment");
    expect(full).toMatchObject({ code: "UNKNOWN_OUTCOME", message });
    const refused = { code: "STORE_REFUSED", message };
    await expect(client.lock("new", { ttl: LONG, wait: 0 })).rejects.toMatchObject(refused);
    await expect(client.lock("new", { ttl: 2 * LONG, wait: 0 })).rejects.toMatchObject(refused);
    expect(await held.unlock()).toBe("released");
    const { revision } = await etcd.range({ op: "get", keys: "junk" });
    await etcdctl(about, "compact", String(revision));
    await etcdctl(about, "defrag");
    await etcdctl(about, "alarm", "disarm");
    const next = await client.lock("held", { ttl: LONG, wait: LONG });
    expect(await next.unlock()).toBe("released");
    await etcd.close();
  });

  test("with three nodes continues when its leader is frozen, moved, or killed together with a holder", async () => {
    const { server, open, about } = await broken("etcd-cluster");
    const [ours, theirs] = [open(), open()];
    const lock = await ours.lock("job", { ttl: LONG, wait: LONG });
    const waiting = theirs.lock("job", { ttl: LONG, wait: 3 * LONG });
    const frozen = await leaderOf(server, about);
    await frozen.kill("SIGSTOP");
    await pause(3_000);
    expect(await lock.unlock()).toBe("released");
    const next = await waiting;
    await frozen.kill("SIGCONT");
    next.assertHeld();

    await until(() => moveLeader(server, about).catch(() => undefined));
    expect(await next.unlock()).toBe("released");

    using holder = runScript("hold", server.url, "job", "2000");
    await holder.line();
    const last = theirs.lock("job", { ttl: LONG, wait: 3 * LONG });
    const killed = await until(() => leaderOf(server, about).catch(() => undefined));
    holder.child.kill("SIGKILL");
    await killed.kill("SIGKILL");
    (await last).assertHeld();
    await killed.start();
  });
});

/** Makes a follower the leader. Fails if the leader changes meanwhile. */
async function moveLeader(server: Server, about: EtcdServer): Promise<true> {
  const leader = await leaderOf(server, about);
  const members = await etcdctl(about, "member", "list", "--write-out=json");
  const ids = members.match(/"ID":(\d+)/g)?.map((id) => BigInt(id.slice(5))) ?? [];
  const at = { ...about, endpoints: [`127.0.0.1:${leader.config.port}`] };
  const status = await etcdctl(at, "endpoint", "status", "--write-out=json");
  const [, leading = ""] = /"leader":(\d+)/.exec(status) ?? [];
  const follower = ids.find((id) => id !== BigInt(leading)) ?? 0n;
  await etcdctl(at, "move-leader", follower.toString(16));
  return true;
}
