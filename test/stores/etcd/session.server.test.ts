import { getEventListeners } from "node:events";
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from "vitest";
import { type Etcd, put } from "../../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../../core/stores/etcd/client/grpc.ts";
import { EtcdSession, type SessionOptions } from "../../../core/stores/etcd/locks/session.ts";
import { etcdctl, freshPrefix, queueOf } from "../../support/etcd.ts";
import { FAULTS, faulty } from "../../support/faulty-etcd.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { pause, until } from "../../support/until.ts";

describe.each(inject("etcdServers"))("a session on $name", (server) => {
  let etcd: Etcd;
  const sessions: EtcdSession[] = [];

  beforeAll(() => {
    etcd = etcdClient({ endpoints: server.endpoints });
  });

  afterEach(async () => {
    await Promise.all(sessions.splice(0).map((session) => session.close()));
  });

  afterAll(() => etcd.close());

  const open = async (options?: SessionOptions, on = etcd) => {
    const session = await EtcdSession.open(on, options);
    sessions.push(session);
    return session;
  };

  const isDone = async (session: EtcdSession) =>
    Promise.race([session.done.then(() => true), pause(0).then(() => false)]);

  test("has a ttl of a minute, or the given one, in whole seconds", async () => {
    expect((await open()).ttl).toBe(60_000);
    const session = await open({ ttl: 89_001 });
    expect(session.ttl).toBe(90_000);
    expect(await etcd.timeToLive(session.id)).toBeGreaterThan(85);
  });

  test("with an invalid ttl is refused before any request", async () => {
    const flaky = faulty(etcd);
    for (const ttl of [0, -1, 999, Number.NaN, Number.POSITIVE_INFINITY, 1e21, "5"] as number[]) {
      await expect(EtcdSession.open(flaky.etcd, { ttl })).rejects.toMatchObject({
        name: expect.stringMatching(/^(Type|Range)Error$/),
      });
    }
    expect(flaky.calls).toEqual([]);
  });

  test("counts its ttl from before the keepalive was sent", async () => {
    const { id, ttl } = await open({ ttl: 30_000 });
    const { etcd: faultless } = faulty(etcd);
    const keepAlive: Etcd["keepAlive"] = async (...args) => {
      const answer = await faultless.keepAlive(...args);
      await pause(300);
      return answer;
    };
    const adopted = await open({ lease: id }, { ...faultless, keepAlive });
    expect(adopted.remaining()).toBeLessThan(ttl - 300 - ttl / 100);
    adopted.orphan();
  });

  test("outlives its ttl while it is kept alive, together with its keys", async () => {
    const prefix = freshPrefix();
    const session = await open({ ttl: 3_000 });
    await etcd.txn({ when: [], do: [put(`${prefix}/a`, "", session.id)] });
    await pause(2 * session.ttl);
    session.assertAlive();
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
  });

  test("that is closed is done, and its lease and keys are gone", async () => {
    const prefix = freshPrefix();
    const session = await open();
    expect(await isDone(session)).toBe(false);
    await etcd.txn({ when: [], do: [put(`${prefix}/a`, "", session.id)] });
    await session.close();
    expect(await isDone(session)).toBe(true);
    expect(session.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
    expect(() => session.assertAlive()).toThrow(
      expect.objectContaining({ code: "SESSION_EXPIRED" }),
    );
    expect(await etcd.timeToLive(session.id)).toBeUndefined();
    expect(await queueOf(etcd, prefix)).toEqual([]);
    await session.close();
  });

  test("that is orphaned is done, and its lease lives on until it expires", async () => {
    const session = await open({ ttl: 4_000 });
    session.orphan();
    expect(await isDone(session)).toBe(true);
    expect(await etcd.timeToLive(session.id)).toBeDefined();
    await until(async () => (await etcd.timeToLive(session.id)) === undefined);
  });

  test("adopts an existing lease, with the ttl of that lease", async () => {
    const first = await open({ ttl: 30_000 });
    first.orphan();
    const second = await open({ lease: first.id });
    expect(second).toMatchObject({ id: first.id, ttl: 30_000 });
    second.assertAlive();
  });

  test("does not adopt a lease whose id is no bigint, such as one from JSON", async () => {
    const lease = "5059" as unknown as bigint;
    const opened = EtcdSession.open(etcd, { lease });
    await expect(opened).rejects.toThrow(TypeError);
    await expect(EtcdSession.open(etcd, { lease })).rejects.toThrow("lease must be a bigint");
  });

  test("adds no listener for each look at whether it is done", async () => {
    await using session = await EtcdSession.open(etcd, { ttl: 30_000 });
    const before = getEventListeners(session.signal, "abort").length;
    for (let i = 0; i < 100; i += 1) await Promise.race([Promise.resolve(i), session.done]);
    expect(getEventListeners(session.signal, "abort").length).toBeLessThanOrEqual(before + 1);
    await session.close();
    await session.done;
  });

  test("does not adopt a lease that is gone", async () => {
    const first = await open();
    await first.close();
    await expect(open({ lease: first.id })).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
  });

  test("whose caller's signal aborts is abandoned: done, and not revoked", async () => {
    const abort = new AbortController();
    const session = await open({ signal: abort.signal });
    abort.abort(new Error("enough"));
    expect(await isDone(session)).toBe(true);
    expect(await etcd.timeToLive(session.id)).toBeDefined();
    await expect(open({ signal: abort.signal })).rejects.toThrow("enough");
  });

  test("ends by itself when its lease was revoked", async () => {
    const session = await open({ ttl: 2_000 });
    await etcdctl(server, "lease", "revoke", session.id.toString(16));
    await until(() => isDone(session));
    expect(session.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
  });

  test("that is cut off has ended before its lease expires", async () => {
    const proxy = await TcpProxy.to(Number(server.endpoints[0]?.split(":").at(-1)));
    const client = etcdClient({ endpoints: [`127.0.0.1:${proxy.port}`] });
    const session = await EtcdSession.open(client, { ttl: 4_000 });
    let endedAt = Number.POSITIVE_INFINITY;
    session.signal.addEventListener("abort", () => {
      endedAt = performance.now();
    });
    await pause(session.ttl);
    session.assertAlive();
    proxy.cut();
    await until(async () => (await etcd.timeToLive(session.id)) === undefined);
    expect(endedAt).toBeLessThan(performance.now());
    proxy.mend();
    await session.close();
    await client.close();
    await proxy.close();
  });

  test("survives a broken connection", async () => {
    const proxy = await TcpProxy.to(Number(server.endpoints[0]?.split(":").at(-1)));
    const client = etcdClient({ endpoints: [`127.0.0.1:${proxy.port}`] });
    const session = await EtcdSession.open(client, { ttl: 6_000 });
    for (let i = 0; i < 5; i += 1) {
      await pause(session.ttl / 4);
      proxy.reset();
    }
    await pause(session.ttl);
    session.assertAlive();
    expect(await etcd.timeToLive(session.id)).toBeDefined();
    await session.close();
    await client.close();
    await proxy.close();
  });

  test.each(FAULTS)(
    "leaves no lease behind unless it opens when a call meets the fault %s",
    async (fault) => {
      const leases: bigint[] = [];
      for (let n = 1, reached = true; reached && n < 10; n += 1) {
        reached = false;
        const flaky = faulty(etcd);
        flaky.decide = (_, call) => {
          reached ||= call === n;
          return call === n || call === n + 1 ? fault : undefined;
        };
        // The lease of a late request lives for one ttl; any other one is revoked.
        const ttl = fault === "late" ? 3_000 : 30_000;
        const session = await EtcdSession.open(flaky.etcd, { ttl }).catch((error) => {
          expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" });
        });
        session?.assertAlive();
        if (session) expect(await etcd.timeToLive(session.id)).toBeDefined();
        await session?.close();
        await flaky.deliver();
        leases.push(...flaky.leases);
      }
      expect(leases.length).toBeGreaterThan(0);
      for (const lease of leases) {
        await until(async () => (await etcd.timeToLive(lease)) === undefined);
      }
    },
  );

  test("is kept alive by faulty calls as long as some get through", async () => {
    const flaky = faulty(etcd);
    const kinds = ["request-lost", undefined, "answer-lost", "refused"] as const;
    flaky.decide = (call, n) => (call === "keepAlive" ? kinds[n % kinds.length] : undefined);
    const session = await EtcdSession.open(flaky.etcd, { ttl: 6_000 });
    await pause(2 * session.ttl);
    session.assertAlive();
    expect(await etcd.timeToLive(session.id)).toBeDefined();
    await session.close();
  });
});
