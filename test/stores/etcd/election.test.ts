import { afterAll, afterEach, describe, expect, inject, test } from "vitest";
import { Election, openEtcd, Session } from "../../../core/stores/etcd/index.ts";
import { describeElection } from "../../conformance/election.ts";
import { etcdElections } from "../../support/elections-under-test.ts";
import { freshPrefix, queueOf } from "../../support/etcd.ts";
import { FAULTS } from "../../support/faulty-etcd.ts";

for (const server of inject("etcdServers")) {
  describeElection(server.name, FAULTS, () => etcdElections(server));
}

describe.each(inject("etcdServers"))("the keys of an election on $name", (server) => {
  const etcd = openEtcd(server);
  const sessions: Session[] = [];

  afterEach(async () => {
    await Promise.all(sessions.splice(0).map((session) => session.close()));
  });

  afterAll(() => etcd.close());

  const newElection = async (prefix: string) => {
    const session = await Session.open(etcd, { ttl: 30_000 });
    sessions.push(session);
    return { election: new Election(etcd, session, prefix), session };
  };

  test("are the same for every object of one session, which are one candidate", async () => {
    const prefix = freshPrefix();
    const { election, session } = await newElection(prefix);
    await election.campaign("first");
    const { revision } = election;
    const same = new Election(etcd, session, prefix);
    await same.campaign("same");
    expect(same.revision).toBe(revision);
    expect(await election.leader()).toMatchObject({ value: "same", revision });
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
  });

  test("are kept by a new session with the same lease", async () => {
    const prefix = freshPrefix();
    const { election, session } = await newElection(prefix);
    await election.campaign("before");
    session.orphan();
    const restarted = await Session.open(etcd, { lease: session.id });
    sessions.push(restarted);
    const again = new Election(etcd, restarted, prefix);
    await again.campaign("after");
    expect(again.revision).toBe(election.revision);
    expect(await again.leader()).toMatchObject({ value: "after" });
  });

  test("are enough, with their revision, to go on in the election and to resign from it", async () => {
    const prefix = freshPrefix();
    const { election, session } = await newElection(prefix);
    await election.campaign("before");
    const { revision = 0n } = election;
    const resumed = Election.resume(etcd, session, prefix, revision);
    expect(resumed).toMatchObject({ key: election.key, revision });
    await resumed.proclaim("after");
    expect(await election.leader()).toMatchObject({ value: "after" });
    expect(await resumed.resign()).toBe("released");
    expect(await election.leader()).toBeUndefined();
    await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(await election.resign()).toBe("was-lost");
  });
});
