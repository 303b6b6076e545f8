import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from "vitest";
import { type Etcd, get, put, remove } from "../../../core/etcd/etcd.ts";
import { Election, type Leader, openEtcd, Session } from "../../../core/stores/etcd/index.ts";
import { etcdctl, freshPrefix, queueOf } from "../../support/etcd.ts";
import { FAULTS, faulty, LATE } from "../../support/faulty-etcd.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { pause, until } from "../../support/until.ts";

describe.each(inject("etcdServers"))("an election on $name", (server) => {
  let etcd: Etcd;
  const sessions: Session[] = [];
  const stops: AbortController[] = [];

  beforeAll(() => {
    etcd = openEtcd(server);
  });

  afterEach(async () => {
    for (const stop of stops.splice(0)) stop.abort();
    await Promise.all(sessions.splice(0).map((session) => session.close()));
  });

  afterAll(() => etcd.close());

  const openSession = async (on = etcd) => {
    const session = await Session.open(on, { ttl: 30_000 });
    sessions.push(session);
    return session;
  };

  const newElection = async (prefix: string) => {
    const session = await openSession();
    return { election: new Election(etcd, session, prefix), session };
  };

  /** A candidate that stands in line already. */
  const candidate = async (prefix: string, value: string) => {
    const made = await newElection(prefix);
    const before = (await queueOf(etcd, prefix)).length;
    let elected = false;
    const campaign = made.election.campaign(value).then(() => {
      elected = true;
    });
    campaign.catch(() => {});
    await until(async () => (await queueOf(etcd, prefix)).length > before);
    return { ...made, campaign, isElected: () => elected };
  };

  /** All that an observer is told. */
  const observe = (election: Election) => {
    const told: (Leader | undefined)[] = [];
    const stop = new AbortController();
    stops.push(stop);
    const ended = (async () => {
      for await (const leader of election.observe({ signal: stop.signal })) told.push(leader);
    })().catch((error) => expect(error).toBe(stop.signal.reason));
    return { told, values: () => told.map((leader) => leader?.value), stop, ended };
  };

  test("has one leader, and the next one when that resigns", async () => {
    const prefix = freshPrefix();
    const first = await newElection(prefix);
    await first.election.campaign("first");
    const second = await candidate(prefix, "second");
    expect(await second.election.leader()).toMatchObject({
      key: first.election.key,
      value: "first",
      revision: first.election.revision,
    });
    await pause(100);
    expect(second.isElected()).toBe(false);
    expect(await first.election.resign()).toBe("released");
    await second.campaign;
    expect(await first.election.leader()).toMatchObject({ value: "second" });
    expect(first.election.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    expect(second.election.signal.aborted).toBe(false);
    await second.election.resign();
    expect(await first.election.leader()).toBeUndefined();
  });

  test("passes to the next candidate when the leader's session ends", async () => {
    const prefix = freshPrefix();
    const first = await newElection(prefix);
    await first.election.campaign("first");
    const second = await candidate(prefix, "second");
    await first.session.close();
    await second.campaign;
    expect(first.election.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
    await expect(first.election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(await second.election.leader()).toMatchObject({ value: "second" });
  });

  test("is observed by three followers through three leaders", async () => {
    const prefix = freshPrefix();
    const followers = await Promise.all([1, 2, 3].map(() => newElection(prefix)));
    const observers = followers.map(({ election }) => observe(election));
    for (const value of ["one", "two", "three"]) {
      const { election } = await newElection(prefix);
      await election.campaign(value);
      for (const { values } of observers) await until(() => values().at(-1) === value);
      await election.resign();
      for (const { values } of observers) await until(() => values().at(-1) === undefined);
    }
    for (const { told } of observers) {
      const modRevisions = told.flatMap((leader) => leader?.modRevision ?? []);
      expect(modRevisions).toEqual([...modRevisions].sort((a, b) => (a < b ? -1 : 1)));
    }
  });

  test("tells an observer first what is: a leader, or that there is none", async () => {
    const prefix = freshPrefix();
    const { election } = await newElection(prefix);
    const none = observe(election);
    await until(() => none.told.length > 0);
    expect(none.values()).toEqual([undefined]);
    await election.campaign("here");
    const some = observe(election);
    await until(() => some.told.length > 0);
    expect(some.values()).toEqual(["here"]);
  });

  test("tells observers what the leader proclaims", async () => {
    const prefix = freshPrefix();
    const { election } = await newElection(prefix);
    await election.campaign("1");
    const observer = observe(election);
    for (const value of ["1", "2", "3"]) {
      await election.proclaim(value);
      await until(() => observer.values().at(-1) === value);
    }
    const [kv] = await queueOf(etcd, prefix);
    expect(kv).toMatchObject({ version: 4n, createRevision: election.revision });
  });

  test("is campaigned for again by its leader, which proclaims", async () => {
    const prefix = freshPrefix();
    const session = await openSession();
    const election = new Election(etcd, session, prefix);
    await election.campaign("first");
    const { revision } = election;
    await election.campaign("again");
    expect(election.revision).toBe(revision);
    // Another object with the same session is the same candidate.
    const same = new Election(etcd, session, prefix);
    await same.campaign("same");
    expect(same.revision).toBe(revision);
    expect(await election.leader()).toMatchObject({ value: "same", revision });
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
  });

  test("is kept by a new session with the same lease", async () => {
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

  test("is resumed from its revision, and proclaimed in and resigned from", async () => {
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

  test("is not held up by a key of which its name is a prefix", async () => {
    const prefix = freshPrefix();
    await etcd.txn({ when: [], do: [put(`${prefix}longer`, "x"), put(prefix, "x")] });
    const { election } = await newElection(prefix);
    await election.campaign("elected");
    expect(await election.leader()).toMatchObject({ value: "elected" });
    await etcd.txn({ when: [], do: [remove(`${prefix}longer`), remove(prefix)] });
  });

  test("is never won by a candidate whose session has ended, or whose key is gone", async () => {
    const prefix = freshPrefix();
    const { election: leader } = await newElection(prefix);
    await leader.campaign("leader");
    const closed = await candidate(prefix, "closed");
    await closed.session.close();
    await expect(closed.campaign).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    const revoked = await candidate(prefix, "revoked");
    await etcdctl(server, "lease", "revoke", revoked.session.id.toString(16));
    await expect(revoked.campaign).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    const deleted = await candidate(prefix, "deleted");
    await etcdctl(server, "del", deleted.election.key);
    await expect(deleted.campaign).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    expect(leader.signal.aborted).toBe(false);
    await leader.resign();
    for (const { isElected } of [closed, revoked, deleted]) expect(isElected()).toBe(false);
    expect(await leader.leader()).toBeUndefined();
  });

  test("is not campaigned for any longer when the caller gives up", async () => {
    const prefix = freshPrefix();
    const { election: leader } = await newElection(prefix);
    await leader.campaign("leader");
    const { election } = await newElection(prefix);
    const abort = new AbortController();
    const campaign = election.campaign("never", { signal: abort.signal });
    const outcome = expect(campaign).rejects.toThrow("enough");
    await until(async () => (await queueOf(etcd, prefix)).length === 2);
    abort.abort(new Error("enough"));
    await outcome;
    expect(await queueOf(etcd, prefix)).toHaveLength(1);
  });

  test("tells its leader at once when the key is deleted", async () => {
    const { election } = await newElection(freshPrefix());
    await election.campaign("leader");
    await pause(100);
    await etcdctl(server, "del", election.key);
    await until(() => election.signal.aborted, 5_000);
    await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(await election.resign()).toBe("was-lost");
  });

  test("is observed across compactions and broken connections", async () => {
    const prefix = freshPrefix();
    const proxy = await TcpProxy.to(Number(server.endpoints[0]?.split(":").at(-1)));
    const client = openEtcd({ endpoints: [`127.0.0.1:${proxy.port}`] });
    const follower = new Election(client, await openSession(client), prefix);
    const { election } = await newElection(prefix);
    await election.campaign("0");
    const observer = observe(follower);
    await until(() => observer.values().at(-1) === "0");
    for (let i = 1; i <= 5; i += 1) {
      proxy.cut();
      await election.proclaim(`${i}`);
      const { revision } = await etcd.range(get(prefix));
      await etcdctl(server, "compact", String(revision));
      proxy.mend();
      await until(() => observer.values().at(-1) === `${i}`);
    }
    observer.stop.abort(new Error("enough"));
    await observer.ended;
    await client.close();
    await proxy.close();
  });

  test.each(FAULTS)(
    "is won or not, and never left behind, when a call meets the fault %s",
    async (fault) => {
      for (let n = 1, reached = true; reached && n < 20; n += 1) {
        reached = false;
        const prefix = freshPrefix();
        const flaky = faulty(etcd);
        flaky.decide = (_, call) => {
          reached ||= call === n;
          return call === n ? fault : undefined;
        };
        const session = await openSession();
        const election = new Election(flaky.etcd, session, prefix);
        const isElected = await election.campaign("flaky").then(
          () => true,
          (error) => {
            expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" });
            return false;
          },
        );
        expect(await queueOf(etcd, prefix)).toHaveLength(isElected ? 1 : 0);
        if (isElected) expect(await election.resign()).toBe("released");
        await session.close();
        if (fault === "late") await pause(LATE + 50);
        expect(await queueOf(etcd, prefix)).toEqual([]);
      }
    },
  );
});
