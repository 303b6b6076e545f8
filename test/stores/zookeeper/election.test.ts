import { afterAll, afterEach, describe, expect, inject, test } from "vitest";
import {
  Election,
  type Leader,
  openZooKeeper,
  type Session,
} from "../../../core/stores/zookeeper/index.ts";
import { FAULTS, faulty } from "../../support/faulty-zookeeper.ts";
import { pause, until } from "../../support/until.ts";
import { freshRoot, lineOf } from "../../support/zookeeper.ts";

describe.each(inject("zookeeperServers"))("an election on $name", ({ servers }) => {
  const zookeeper = openZooKeeper({ servers });
  const sessions: Session[] = [];
  const stops: AbortController[] = [];

  afterEach(async () => {
    for (const stop of stops.splice(0)) stop.abort();
    await Promise.all(sessions.splice(0).map((session) => session.close()));
  });

  afterAll(() => zookeeper.close());

  const openSession = async (on = zookeeper) => {
    const session = await on.openSession(30_000);
    sessions.push(session);
    return session;
  };

  const newElection = async (path: string) => {
    const session = await openSession();
    return { election: new Election(session, path), session };
  };

  /** A candidate that stands in line already. */
  const candidate = async (path: string, value: string) => {
    const made = await newElection(path);
    const before = (await lineOf(made.session, path)).length;
    let elected = false;
    const campaign = made.election.campaign(value).then(() => {
      elected = true;
    });
    campaign.catch(() => {});
    await until(async () => (await lineOf(made.session, path)).length > before);
    return { ...made, campaign, isElected: () => elected };
  };

  /** All that an observer is told. */
  const observe = (election: Election) => {
    const told: (Leader | undefined)[] = [];
    const stop = new AbortController();
    stops.push(stop);
    const ended = (async () => {
      for await (const leader of election.observe({ signal: stop.signal })) told.push(leader);
    })().catch((error) => error);
    return { told, values: () => told.map((leader) => leader?.value), stop, ended };
  };

  test("has one leader, and the next one when that resigns", async () => {
    const path = freshRoot();
    const first = await newElection(path);
    await first.election.campaign("first");
    const second = await candidate(path, "second");
    expect(await second.election.leader()).toMatchObject({
      path: first.election.path,
      value: "first",
      czxid: first.election.czxid,
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
    expect(await second.election.resign()).toBe("was-lost");
  });

  test("passes to the next candidate when the leader's session ends", async () => {
    const path = freshRoot();
    const first = await newElection(path);
    await first.election.campaign("first");
    const second = await candidate(path, "second");
    await first.session.close();
    await second.campaign;
    expect(first.election.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
    await expect(first.election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(await second.election.leader()).toMatchObject({ value: "second" });
  });

  test("is observed by three followers through three leaders, and tells first what is", async () => {
    const path = freshRoot();
    const followers = await Promise.all([1, 2, 3].map(() => newElection(path)));
    const observers = followers.map(({ election }) => observe(election));
    for (const { values, told } of observers) {
      await until(() => told.length > 0);
      expect(values()).toEqual([undefined]);
    }
    for (const value of ["one", "two", "three"]) {
      const { election } = await newElection(path);
      await election.campaign(value);
      for (const { values } of observers) await until(() => values().at(-1) === value);
      await election.proclaim(`${value}!`);
      for (const { values } of observers) await until(() => values().at(-1) === `${value}!`);
      await election.resign();
      for (const { values } of observers) await until(() => values().at(-1) === undefined);
    }
    for (const { told, stop, ended } of observers) {
      const changes = told.flatMap((leader) => leader?.mzxid ?? []);
      expect(changes).toEqual([...changes].sort((a, b) => (a < b ? -1 : 1)));
      stop.abort("enough");
      expect(await ended).toBe("enough");
    }
  });

  test("is campaigned for again by its leader, which proclaims", async () => {
    const path = freshRoot();
    const { election, session } = await newElection(path);
    await election.campaign("first");
    const { czxid } = election;
    await election.campaign("again");
    expect(election.czxid).toBe(czxid);
    expect(await election.leader()).toMatchObject({ value: "again", czxid });
    expect(await lineOf(session, path)).toHaveLength(1);
  });

  test("is never won by a candidate whose session has ended, or whose node is gone", async () => {
    const path = freshRoot();
    const { election: leader, session } = await newElection(path);
    await leader.campaign("leader");
    const closed = await candidate(path, "closed");
    await closed.session.close();
    await expect(closed.campaign).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    const deleted = await candidate(path, "deleted");
    await pause(50);
    await session.remove(`${path}/${(await lineOf(session, path))[1]}`);
    await expect(deleted.campaign).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    expect(leader.signal.aborted).toBe(false);
    await leader.resign();
    for (const { isElected } of [closed, deleted]) expect(isElected()).toBe(false);
    expect(await leader.leader()).toBeUndefined();
  });

  test("tells its leader at once when the node is deleted", async () => {
    const { election, session } = await newElection(freshRoot());
    await election.campaign("leader");
    await pause(100);
    await session.remove(election.path ?? "");
    await until(() => election.signal.aborted, 5_000);
    await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
    expect(await election.resign()).toBe("was-lost");
  });

  test.each(FAULTS)("with a request that is %s leaves nobody in the queue", async (fault) => {
    const path = freshRoot();
    const flaky = faulty(zookeeper);
    const [session, other] = [await openSession(flaky.zookeeper), await openSession()];
    for (let n = 1, struck = true; struck; n += 1) {
      const election = new Election(session, path);
      const before = flaky.calls.length;
      struck = false;
      flaky.decide = (_, call) => {
        if (call !== before + n) return undefined;
        struck = true;
        return fault;
      };
      const isElected = await election.campaign("value").then(
        () => true,
        (error) => void expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" }),
      );
      if (isElected) expect(await election.resign()).toBe("released");
      const [, children = []] = await Promise.all([other.sync(), other.children(path)]);
      expect(children).toEqual([]);
    }
  });

  test("is not campaigned for any longer when the caller gives up", async () => {
    const path = freshRoot();
    const { election: leader, session } = await newElection(path);
    await leader.campaign("leader");
    const { election } = await newElection(path);
    const abort = new AbortController();
    const campaign = election.campaign("never", { signal: abort.signal });
    const outcome = expect(campaign).rejects.toThrow("enough");
    await until(async () => (await lineOf(session, path)).length === 2);
    abort.abort(new Error("enough"));
    await outcome;
    expect(await lineOf(session, path)).toHaveLength(1);
  });
});
