import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Election, Leader } from "../../core/lock/election.ts";
import type { Wire } from "../support/breakable.ts";
import type { Fault } from "../support/faulty-etcd.ts";
import { pause, until } from "../support/until.ts";

/** An election, and the session that only this election uses. */
interface Candidate {
  readonly election: Election;
  readonly session: { close(): Promise<void> };
}

/** The elections of one store, for the suite. */
export interface ElectionsUnderTest {
  /** Returns a name that no other election has. */
  freshName(): string;
  open(name: string): Promise<Candidate>;

  /** Opens an election whose session another client can end. */
  openRevocable(name: string): Promise<Candidate & { revoke(): Promise<void> }>;

  /** Opens an election with faulty calls, as `strike` injects them. */
  openFaulty(name: string): Promise<
    Candidate & {
      strike(n: number, fault: Fault): () => boolean;

      /** Carries out the calls that are late. */
      deliver(): Promise<void>;
    }
  >;

  /** Opens an election over a connection that can be cut. */
  openOverWire(name: string): Promise<Candidate & { readonly wire: Wire }>;

  /** Returns the queue's entries, the earliest first, and how often each candidate has written its value. */
  queue(name: string): Promise<readonly { readonly writes: number; erase(): Promise<void> }[]>;

  /** Writes keys that are no candidates next to the queue, and into the queue where possible. */
  addStrangers(name: string): Promise<void>;

  /** Makes the servers forget past revisions, where they keep them. */
  forget(): Promise<void>;
  close(): Promise<void>;
}

/** Tests what every election guarantees. */
export function describeElection(
  name: string,
  faults: readonly Fault[],
  make: () => Promise<ElectionsUnderTest>,
): void {
  describe(`an election on ${name}`, () => {
    let elections: ElectionsUnderTest;
    const sessions: Candidate["session"][] = [];
    const observers: { stop: AbortController; ended: Promise<unknown> }[] = [];

    beforeAll(async () => {
      elections = await make();
    });

    afterEach(async () => {
      for (const { stop, ended } of observers.splice(0)) {
        stop.abort("over");
        expect(await ended).toBe(stop.signal.reason);
      }
      await Promise.all(sessions.splice(0).map((session) => session.close()));
    });

    afterAll(() => elections.close());

    const kept = async <C extends Candidate>(opening: Promise<C>) => {
      const candidate = await opening;
      sessions.push(candidate.session);
      return candidate;
    };

    const open = (name: string) => kept(elections.open(name));

    const leading = async (name: string, value: string) => {
      const candidate = await open(name);
      await candidate.election.campaign(value);
      return candidate;
    };

    /** The key and the token of a candidate. */
    const identity = ({ election: { key, token } }: Candidate) => ({ key, token });

    /** A candidate that is in the queue already. */
    const queued = async <C extends Candidate>(name: string, opening: Promise<C>) => {
      const candidate = await kept(opening);
      const before = (await elections.queue(name)).length;
      let elected = false;
      const campaign = candidate.election.campaign("waits").then(() => {
        elected = true;
      });
      campaign.catch(() => {});
      await until(async () => (await elections.queue(name)).length > before);
      return { ...candidate, campaign, isElected: () => elected };
    };

    /** Collects the states that an observer gets. */
    const observe = ({ election }: Candidate) => {
      const seen: (Leader | undefined)[] = [];
      const stop = new AbortController();
      const ended = (async () => {
        for await (const leader of election.observe({ signal: stop.signal })) seen.push(leader);
      })().catch((error) => error);
      observers.push({ stop, ended });
      return { seen, values: () => seen.map((leader) => leader?.value) };
    };

    test("the next candidate leads after the leader resigns", async () => {
      const name = elections.freshName();
      const first = await leading(name, "first");
      const second = await queued(name, elections.open(name));
      const known = { ...identity(first), value: "first" };
      expect(await second.election.leader()).toMatchObject(known);
      await pause(100);
      expect(second.isElected()).toBe(false);
      const notLeading = identity(second);
      expect(await first.election.resign()).toBe("released");
      await second.campaign;
      expect(await first.election.leader()).toMatchObject(identity(second));
      expect(first.election.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
      expect(second.election.signal.aborted).toBe(false);
      await second.election.resign();
      expect(identity(second)).toEqual(notLeading);
      expect(await first.election.leader()).toBeUndefined();
      expect(await second.election.resign()).toBe("was-lost");
    });

    test("the next candidate leads after the leader's session ends", async () => {
      const name = elections.freshName();
      const { election, session } = await leading(name, "first");
      const second = await queued(name, elections.open(name));
      await session.close();
      await second.campaign;
      expect(election.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
      await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
      expect(await second.election.leader()).toMatchObject(identity(second));
    });

    test("three followers observe three leaders in order", async () => {
      const name = elections.freshName();
      const followers = await Promise.all([1, 2, 3].map(async () => observe(await open(name))));
      const allSaw = async (value: string | undefined) => {
        for (const { seen, values } of followers) {
          await until(() => seen.length > 0 && values().at(-1) === value);
        }
      };
      await allSaw(undefined);
      for (const value of ["one", "two", "three"]) {
        const { election } = await leading(name, value);
        await allSaw(value);
        await election.proclaim(`${value}!`);
        await allSaw(`${value}!`);
        await election.resign();
        await allSaw(undefined);
      }
      for (const { seen } of followers) {
        const revisions = seen.flatMap((leader) => (leader ? leader.revision : []));
        expect(revisions).toEqual([...revisions].sort((a, b) => (a < b ? -1 : 1)));
      }
    });

    test("an observer gets the current state first: a leader, or none", async () => {
      const name = elections.freshName();
      const candidate = await open(name);
      const none = observe(candidate);
      await until(() => none.seen.length > 0);
      expect(none.values()).toEqual([undefined]);
      await candidate.election.campaign("here");
      const some = observe(candidate);
      await until(() => some.seen.length > 0);
      expect(some.values()).toEqual(["here"]);
    });

    test("observers get the values that the leader proclaims", async () => {
      const name = elections.freshName();
      const leader = await leading(name, "1");
      const before = identity(leader);
      const observer = observe(leader);
      for (const value of ["1", "2", "3"]) {
        await leader.election.proclaim(value);
        await until(() => observer.values().at(-1) === value);
      }
      expect(await elections.queue(name)).toMatchObject([{ writes: 4 }]);
      expect(identity(leader)).toEqual(before);
    });

    test("a leader that campaigns again proclaims the new value", async () => {
      const name = elections.freshName();
      const leader = await leading(name, "first");
      const { election } = leader;
      const before = identity(leader);
      await election.campaign("again");
      expect(identity(leader)).toEqual(before);
      expect(await election.leader()).toMatchObject({ ...before, value: "again" });
      expect(await elections.queue(name)).toHaveLength(1);
    });

    test.each(faults)("a campaign during resign waits for it, and then wins: %s", async (fault) => {
      const name = elections.freshName();
      const candidate = await kept(elections.openFaulty(name));
      const { election, strike } = candidate;
      await election.campaign("first");
      const before = identity(candidate);
      strike(1, fault);
      const resigned = [election.resign(), election.resign()];
      await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
      await election.campaign("again");
      expect(await Promise.all(resigned)).toEqual(["released", "released"]);
      expect(identity(candidate)).not.toEqual(before);
      expect(await election.leader()).toMatchObject({ ...identity(candidate), value: "again" });
      expect(election.signal.aborted).toBe(false);
    });

    test("keys that are no candidates do not delay an election", async () => {
      const name = elections.freshName();
      const { election } = await leading(name, "first");
      // ZooKeeper would delete an empty queue.
      await elections.addStrangers(name);
      await election.resign();
      await election.campaign("elected");
      expect(await election.leader()).toMatchObject({ value: "elected" });
    });

    test.each(["session is closed", "session is ended by another client", "entry is gone"])(
      "a candidate never wins when its %s",
      async (what) => {
        const name = elections.freshName();
        const { election: leader } = await leading(name, "leader");
        const waiter = await queued(name, elections.openRevocable(name));
        await pause(50);
        if (what === "session is closed") await waiter.session.close();
        else if (what === "entry is gone") await (await elections.queue(name))[1]?.erase();
        else await waiter.revoke();
        await expect(waiter.campaign).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
        expect(leader.signal.aborted).toBe(false);
        await leader.resign();
        expect(waiter.isElected()).toBe(false);
        expect(await leader.leader()).toBeUndefined();
      },
    );

    test("a campaign that is aborted leaves the queue", async () => {
      const name = elections.freshName();
      await leading(name, "leader");
      const { election } = await open(name);
      const abort = new AbortController();
      const campaign = election.campaign("never", { signal: abort.signal });
      const outcome = expect(campaign).rejects.toThrow("enough");
      await until(async () => (await elections.queue(name)).length === 2);
      abort.abort(new Error("enough"));
      await outcome;
      expect(await elections.queue(name)).toHaveLength(1);
    });

    test.each(faults)("an observer goes on when a call is %s", async (fault) => {
      for (let n = 1, struck = true; struck; n += 1) {
        const { election, session, strike } = await elections.openFaulty(elections.freshName());
        const isStruck = strike(n, fault);
        const states = election.observe();
        expect(await states.next()).toEqual({ done: false, value: undefined });
        struck = isStruck();
        await states.return(undefined);
        await session.close();
      }
    });

    test.each(["entry", "session"])(
      "the leader's signal aborts at once when its %s is gone",
      async (what) => {
        const name = elections.freshName();
        const { election, revoke } = await kept(elections.openRevocable(name));
        await election.campaign("leader");
        await pause(100);
        if (what === "session") await revoke();
        else await (await elections.queue(name))[0]?.erase();
        await until(() => election.signal.aborted);
        expect(election.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
        await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
        expect(await election.resign()).toBe("was-lost");
      },
    );

    test("resign answers was-lost when the entry is gone, also after a lost first attempt", async () => {
      const name = elections.freshName();
      const { election, strike } = await kept(elections.openFaulty(name));
      await election.campaign("leader");
      await (await elections.queue(name))[0]?.erase();
      await until(() => election.signal.aborted);
      strike(1, "request-lost");
      expect(await election.resign()).toBe("was-lost");
    });

    test("an observer survives broken connections and a compaction meanwhile", async () => {
      const name = elections.freshName();
      const follower = await kept(elections.openOverWire(name));
      const { election } = await leading(name, "0");
      const observer = observe(follower);
      await until(() => observer.values().at(-1) === "0");
      for (let i = 1; i <= 5; i += 1) {
        follower.wire.cut();
        await election.proclaim(`${i}`);
        await elections.forget();
        follower.wire.mend();
        await until(() => observer.values().at(-1) === `${i}`);
      }
    });

    test.each(faults)(
      "a campaign leaves no entry behind unless it wins when a call is %s",
      async (fault) => {
        const used = elections.freshName();
        const names: string[] = [];
        for (const nextName of [elections.freshName, () => used]) {
          for (let n = 1, struck = true; struck; n += 1) {
            const name = nextName();
            names.push(name);
            const { election, session, strike, deliver } = await elections.openFaulty(name);
            const isStruck = strike(n, fault);
            const isElected = await election.campaign("flaky").then(
              () => true,
              (error) => void expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" }),
            );
            expect(await elections.queue(name)).toHaveLength(isElected ? 1 : 0);
            if (isElected) expect(await election.resign()).toBe("released");
            struck = isStruck();
            await session.close();
            await deliver();
          }
        }
        for (const name of names) expect(await elections.queue(name)).toEqual([]);
      },
    );
  });
}
