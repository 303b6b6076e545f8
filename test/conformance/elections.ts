import { afterAll, afterEach, describe, expect, test } from "vitest";
import type { Election, Leader } from "../../core/lock/election.ts";
import { compareFence } from "../../core/lock/fence.ts";
import { lockElections } from "../../core/lock/lock-election.ts";
import type { StoreUnderTest } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";
import { freshName, LONG, LockSuite, SHORT } from "./lock-suite.ts";

/** What every store's elections guarantee. The suite of `election.ts` tests the queues of etcd and ZooKeeper on top. */
export function describeElections(name: string, make: () => Promise<StoreUnderTest>): void {
  describe(`the elections of ${name}`, () => {
    const suite = new LockSuite(make);
    const observers: { readonly stop: AbortController; readonly ended: Promise<unknown> }[] = [];

    afterEach(async () => {
      for (const { stop, ended } of observers.splice(0)) {
        stop.abort("over");
        expect(await ended).toBe("over");
      }
      await suite.closeClients();
    });

    const openCandidate = async (name: string, ttl = LONG) => {
      const client = await suite.openElections();
      return { ...client, election: await client.elections.open(name, { ttl }) };
    };

    const openLeader = async (name: string, value: string, ttl = LONG) => {
      const candidate = await openCandidate(name, ttl);
      await candidate.election.campaign(value);
      return candidate;
    };

    /** Collects the states that an observer gets. */
    const observe = (election: Election) => {
      const seen: (Leader | undefined)[] = [];
      const stop = new AbortController();
      const ended = (async () => {
        for await (const leader of election.observe({ signal: stop.signal })) seen.push(leader);
      })().catch((error) => error);
      observers.push({ stop, ended });
      return {
        seen,
        saw: (value: string | undefined) =>
          until(() => seen.length > 0 && seen.at(-1)?.value === value),
      };
    };

    test("one candidate leads at a time, and the next leads after it resigns, with a higher fence", async () => {
      const name = freshName();
      const first = (await openLeader(name, "first")).election;
      const { election: second } = await openCandidate(name);
      let isElected = false;
      const campaign = second.campaign("second").then(() => {
        isElected = true;
      });
      await pause(300);
      expect(isElected).toBe(false);
      expect(second).toMatchObject({ key: undefined, token: undefined, fence: undefined });
      expect(() => second.assertLeads()).toThrow();
      first.assertLeads();
      const { fence, key, token } = first;
      expect(fence).toMatchObject({ resource: name, token });
      const shown = { key, token, fence: fence?.toString(), value: "first" };
      expect(await second.leader()).toMatchObject(shown);
      expect(await first.resign()).toBe("released");
      await campaign;
      expect(first.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
      expect(() => first.assertLeads()).toThrow();
      second.assertLeads();
      if (!fence || !second.fence) throw new Error("a leader has a fence");
      expect(compareFence(fence, second.fence)).toBe(-1);
      expect(await first.leader()).toMatchObject({ value: "second", token: second.token });
      expect(await first.resign()).toBe("was-lost");
      expect(await second.resign()).toBe("released");
      expect(await first.leader()).toBeUndefined();
    });

    test("the store tells since when the leader leads, except etcd", async () => {
      const { election, locks } = await openLeader(freshName(), "here");
      const since = (await election.leader())?.since;
      if (locks.traits.name === "etcd") expect(since).toBeUndefined();
      else expect(Math.abs(Date.now() - (since?.getTime() ?? 0))).toBeLessThan(60_000);
    });

    test("followers get the current leader first, and then each value and each leader", async () => {
      const name = freshName();
      const { election: follower } = await openCandidate(name);
      const none = observe(follower);
      await none.saw(undefined);
      const { election: leader } = await openLeader(name, "one");
      await none.saw("one");
      const some = observe(follower);
      await some.saw("one");
      expect(some.seen[0]).toMatchObject({ value: "one", token: leader.token });
      const { fence } = leader;
      for (const value of ["two", "", "three"]) {
        await leader.proclaim(value);
        await none.saw(value);
      }
      await leader.campaign("four");
      await none.saw("four");
      expect(leader.fence).toEqual(fence);
      await leader.resign();
      await none.saw(undefined);
      const { election: next } = await openLeader(name, "four");
      await none.saw("four");
      expect(none.seen.at(-1)?.token).toBe(next.token);
      await some.saw("four");
    });

    test("a follower follows into a higher generation of fences", {
      timeout: 120_000,
    }, async () => {
      const name = freshName();
      const first = await openLeader(name, "first");
      const seen = observe((await openCandidate(name)).election);
      await seen.saw("first");
      await first.election.resign();
      await first.locks.raiseGeneration();
      const { election } = await openLeader(name, "second");
      await seen.saw("second");
      expect(election.fence?.generation).toBeGreaterThan(0);
      expect(seen.seen.at(-1)?.fence).toBe(election.fence?.toString());
    });

    test("a leader that an operator deposes loses its signal, and another one leads", async () => {
      const name = freshName();
      const { election, locks } = await openLeader(name, "first", 2 * SHORT);
      const fence = election.fence?.toString() ?? "";
      expect(await locks.inspect(name)).toMatchObject({ fence });
      const operator = await suite.openElections();
      await operator.locks.release(name, { fence });
      const { election: next } = await openLeader(name, "second");
      await until(() => election.signal.aborted);
      expect(election.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
      await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
      expect(await election.resign()).toBe("was-lost");
      expect(await next.leader()).toMatchObject({ value: "second" });
    });

    test("the leader holds the lock of the same name", async () => {
      const name = freshName();
      const { election, locks } = await openLeader(name, "leader");
      expect(await locks.tryLock(name, { ttl: LONG })).toBeUndefined();
      expect(await locks.list(name)).toMatchObject([{ name, fence: election.fence?.toString() }]);
      await election.resign();
      const lock = await locks.lock(name, { ttl: LONG, wait: LONG });
      const campaign = election.campaign("leader");
      await pause(200);
      expect(election.token).toBeUndefined();
      await lock.unlock();
      await campaign;
      election.assertLeads();
    });

    test("a campaign that is aborted, or closed, never wins", async () => {
      const name = freshName();
      const { election: leader } = await openLeader(name, "leader");
      const [aborted, closed] = [await openCandidate(name), await openCandidate(name)];
      const abort = new AbortController();
      const outcomes = [
        expect(aborted.election.campaign("never", { signal: abort.signal })).rejects.toThrow(
          "enough",
        ),
        expect(closed.election.campaign("never")).rejects.toMatchObject({
          code: "SESSION_EXPIRED",
        }),
      ];
      await pause(200);
      abort.abort(new Error("enough"));
      await closed.election.close();
      await Promise.all(outcomes);
      await leader.resign();
      await pause(200);
      expect(await leader.leader()).toBeUndefined();
    });

    test("an election that is closed at the moment of its win leaves nothing behind", async () => {
      const name = freshName();
      const { election: follower } = await openCandidate(name);
      for (let turns = 10; turns < 30; turns += 1) {
        const { election } = await openCandidate(name);
        const campaign = election.campaign("never").catch(() => {});
        for (let i = 0; i < turns; i += 1) await Promise.resolve();
        await election.close();
        await campaign;
        expect(() => election.assertLeads()).toThrow();
        await until(async () => (await follower.leader()) === undefined);
      }
    });

    test("two campaigns of one election are one candidate, which has resigned after one resign", async () => {
      const name = freshName();
      const { election } = await openCandidate(name);
      await Promise.all([election.campaign("a"), election.campaign("b")]);
      expect(await election.leader()).toMatchObject({ value: "b", token: election.token });
      expect(await election.resign()).toBe("released");
      const [first, second] = [election.campaign("a"), election.campaign("b")];
      const outcome = expect(second).rejects.toMatchObject({ code: "LOCK_RELEASED" });
      await first.then(() => election.resign());
      await outcome;
      await pause(200);
      expect(await election.leader()).toBeUndefined();
      const abort = new AbortController();
      const aborted = expect(election.campaign("a", { signal: abort.signal })).rejects.toThrow(
        "enough",
      );
      const next = election.campaign("b");
      abort.abort(new Error("enough"));
      await aborted;
      await next;
      expect(await election.leader()).toMatchObject({ value: "b" });
    });

    test("of values that are proclaimed at once, the last one stands", async () => {
      const { election } = await openLeader(freshName(), "0");
      for (let round = 0; round < 10; round += 1) {
        const values = ["a", "b", "c"].map((letter) => `${letter}${round}`);
        await Promise.all(values.map((value) => election.proclaim(value)));
        expect(await election.leader()).toMatchObject({ value: values.at(-1) });
      }
    });

    test("an observer ends with its election", async () => {
      const { election } = await openCandidate(freshName());
      const observing = (async () => {
        for await (const _ of election.observe()) await election.close();
      })();
      await expect(observing).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
    });

    test("a store that is closed resigns", async () => {
      const name = freshName();
      const { election, locks } = await openLeader(name, "first");
      const { election: next } = await openCandidate(name);
      const campaign = next.campaign("second");
      await locks.close();
      expect(election.signal.aborted).toBe(true);
      await campaign;
      next.assertLeads();
    });

    test("a disposed election has resigned", async () => {
      const name = freshName();
      const { election: follower } = await openCandidate(name);
      {
        await using election = (await openCandidate(name)).election;
        await election.campaign("first");
        expect(await follower.leader()).toMatchObject({ value: "first" });
      }
      expect(await follower.leader()).toBeUndefined();
    });

    test("a wrong name, ttl or value is refused", async () => {
      const { elections, locks, election } = await openCandidate(freshName());
      await expect(elections.open("")).rejects.toThrow(RangeError);
      const below = locks.traits.minTtl - 1;
      await expect(elections.open("a", { ttl: below })).rejects.toThrow(/ttl must be/);
      await expect(election.campaign(7 as never)).rejects.toThrow(TypeError);
      const huge = election.campaign("é".repeat(500_001));
      await expect(huge).rejects.toThrow(/1000002 bytes, the limit is/);
      // The others keep it beside the holder's id.
      if (suite.store.openWithElections) return;
      const long = "é".repeat(41);
      await expect(election.campaign(long)).rejects.toThrow(/82 bytes, the limit is 80/);
      await expect(election.campaign('"'.repeat(41))).rejects.toThrow(/82 bytes, the limit is 80/);
      await election.campaign("é".repeat(40));
      expect(await election.leader()).toMatchObject({ value: "é".repeat(40) });
      await expect(election.proclaim(long)).rejects.toThrow(RangeError);
    });
  });
}

/** What elections over locks guarantee when answers are lost. */
export function describeLostProclamations(name: string, make: () => Promise<StoreUnderTest>): void {
  // These tests wait for most of their time.
  describe.concurrent(`lost answers to the leader of an election on ${name}`, () => {
    const suite = new LockSuite(make);
    afterAll(suite.closeClients);

    const openLeader = async (ttl: number) => {
      const election = freshName();
      const { client, wire } = await suite.openOverWire();
      const leader = await lockElections(client).open(election, { ttl });
      await leader.campaign("before");
      const { elections } = await suite.openElections();
      const follower = await elections.open(election);
      return { leader, follower, wire };
    };

    test("a proclamation whose answer is lost is confirmed by a later renewal", async () => {
      const { leader, follower, wire } = await openLeader(2 * SHORT);
      const { fence } = leader;
      wire.loseNextAnswer();
      await leader.proclaim("after").catch(() => {});
      await pause(2 * SHORT);
      leader.assertLeads();
      expect(await follower.leader()).toMatchObject({ value: "after" });
      await leader.proclaim("later");
      expect(await follower.leader()).toMatchObject({ value: "later", fence: String(fence) });
      expect(await leader.resign()).toBe("released");
    });

    test("proclamations at once are all written", async () => {
      const { leader, follower } = await openLeader(LONG);
      await Promise.all(["a", "b", "c"].map((value) => leader.proclaim(value)));
      expect(await follower.leader()).toMatchObject({ revision: 3n });
    });

    test("a leader resigns again after an unknown outcome", async () => {
      // The call that gives up takes 10 s.
      const { leader, follower, wire } = await openLeader(3 * LONG);
      wire.cut();
      await expect(leader.resign()).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
      wire.mend();
      expect(await follower.leader()).toMatchObject({ value: "before" });
      expect(await leader.resign()).toBe("released");
      expect(await follower.leader()).toBeUndefined();
    });

    test("a value that looks like an id does not hide the leader's", async () => {
      const { leader, follower } = await openLeader(LONG);
      const value = `x/${crypto.randomUUID()} {y}`;
      await leader.proclaim(value);
      expect(await follower.leader()).toMatchObject({ value, key: leader.key });
    });

    test("a leader resigns whether its proclamation has arrived or not", async () => {
      for (const fail of ["loseNextAnswer", "blackhole"] as const) {
        const { leader, follower, wire } = await openLeader(LONG);
        wire[fail]();
        const proclaiming = leader.proclaim("after").catch(() => {});
        await pause(100);
        expect(await leader.resign()).toBe("released");
        await proclaiming;
        expect(await follower.leader()).toBeUndefined();
        await follower.campaign("next");
        await follower.resign();
      }
    });
  });
}
