import { afterAll, afterEach, describe, expect, inject, test, vi } from "vitest";
import { etcdClient } from "../../../core/stores/etcd/client/grpc.ts";
import { EtcdSession, etcdElection, openEtcd } from "../../../core/stores/etcd/index.ts";
import { describeElection } from "../../conformance/election.ts";
import { etcdElections } from "../../support/elections-under-test.ts";
import { freshPrefix, queueOf } from "../../support/etcd.ts";
import { FAULTS } from "../../support/faulty-etcd.ts";
import { runScript } from "../../support/script.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { pause, until } from "../../support/until.ts";

for (const server of inject("etcdServers")) {
  describeElection(server.name, FAULTS, () => etcdElections(server));
}

describe.concurrent("a process that waits, whose connections are cut once,", () => {
  test.each(["candidate", "observer", "lock", "mutex"])("goes on to wait: %s", async (kind) => {
    const [server] = inject("etcdServers");
    const [endpoint = ""] = server?.endpoints ?? [];
    await using store = await openEtcd({ endpoints: [endpoint] });
    const name = freshPrefix();
    const election = await store.elections.open(name, { ttl: "60s" });
    await election.campaign("leader");
    const proxy = await TcpProxy.to(Number(endpoint.split(":").at(-1)));
    using waiter = runScript("wait-in-etcd", kind, `127.0.0.1:${proxy.port}`, name);
    if (kind === "observer") await waiter.line();
    else await until(async () => (await queueOf(store.etcd, name)).length === 2);
    // Its watches stand by then.
    await pause(1_000);
    proxy.reset();
    const ended = await Promise.race([waiter.ended, pause(2_000).then(() => "waits")]);
    expect(ended).toBe("waits");
    if (kind === "observer") await election.proclaim("next");
    else await election.resign();
    expect(await waiter.line()).toBe("has it");
    await waiter.ended;
    await proxy.close();
  });
});

describe.each(inject("etcdServers"))("the keys of an election on $name", (server) => {
  const etcd = etcdClient({ endpoints: server.endpoints });
  const sessions: EtcdSession[] = [];

  afterEach(async () => {
    await Promise.all(sessions.splice(0).map((session) => session.close()));
  });

  afterAll(() => etcd.close());

  const newElection = async (prefix: string) => {
    const session = await EtcdSession.open(etcd, { ttl: 30_000 });
    sessions.push(session);
    return { election: etcdElection(etcd, session, prefix), session };
  };

  test("two elections of one session share one key and are one candidate", async () => {
    const prefix = freshPrefix();
    const { election, session } = await newElection(prefix);
    await election.campaign("first");
    const { token } = election;
    const same = etcdElection(etcd, session, prefix);
    await same.campaign("same");
    expect(same.token).toBe(token);
    expect(await election.leader()).toMatchObject({ value: "same", token });
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
  });

  test("a new session with the same lease keeps the key", async () => {
    const prefix = freshPrefix();
    const { election, session } = await newElection(prefix);
    await election.campaign("before");
    const { token } = election;
    session.orphan();
    const restarted = await EtcdSession.open(etcd, { lease: session.id });
    sessions.push(restarted);
    const again = etcdElection(etcd, restarted, prefix);
    await again.campaign("after");
    expect(again.token).toBe(token);
    expect(await again.leader()).toMatchObject({ value: "after" });
  });

  test("a leader whose session was orphaned proclaims nothing, although its key is still there", async () => {
    const prefix = freshPrefix();
    const { election, session } = await newElection(prefix);
    await election.campaign("before");
    session.orphan();
    await expect(election.proclaim("after")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(await election.leader()).toMatchObject({ value: "before" });
  });

  test("a leader whose process was frozen for longer than its ttl does not lead, before any timer fires", async () => {
    const { election } = await newElection(freshPrefix());
    await election.campaign("frozen");
    election.assertLeads();
    const now = performance.now() + 60_000;
    const clock = vi.spyOn(performance, "now").mockImplementation(() => now);
    const expired = expect.objectContaining({ code: "SESSION_EXPIRED" });
    expect(() => election.assertLeads()).toThrow(expired);
    clock.mockRestore();
  });

  test("a lease and a token are enough to resume an election and to resign", async () => {
    const prefix = freshPrefix();
    const { election, session } = await newElection(prefix);
    await election.campaign("before");
    const { token = 0n } = election;
    const resumed = etcdElection(etcd, session, prefix, { resume: token });
    expect(resumed).toMatchObject({ key: election.key, token });
    await resumed.proclaim("after");
    expect(await election.leader()).toMatchObject({ value: "after" });
    expect(await resumed.resign()).toBe("released");
    expect(await election.leader()).toBeUndefined();
    await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(await election.resign()).toBe("was-lost");
  });
});
