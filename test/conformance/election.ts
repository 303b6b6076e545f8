import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Unlocked } from "../../core/lock/lock.ts";
import type { Wire } from "../support/breakable.ts";
import { type Fault, LATE } from "../support/faulty-etcd.ts";
import { pause, until, within } from "../support/until.ts";

/** What is told takes milliseconds. */
const AT_ONCE = 4_000;

interface AnyLeader {
  readonly value: string;
}

interface AnyElection<Leader> {
  readonly signal: AbortSignal;
  campaign(value: string, options?: { readonly signal?: AbortSignal }): Promise<void>;
  proclaim(value: string): Promise<void>;
  resign(): Promise<Unlocked>;
  leader(): Promise<Leader | undefined>;
  observe(options: { readonly signal: AbortSignal }): AsyncGenerator<Leader | undefined>;
}

/** An election, and the session that it alone has. */
interface Candidate<Leader> {
  readonly election: AnyElection<Leader>;
  readonly session: { close(): Promise<void> };

  /** What `leader` tells of it while it leads, besides the value: where it stands, and its fencing token. */
  standing(): object;
}

/** A system of elections as the suite takes it. */
export interface ElectionsUnderTest<Leader extends AnyLeader = AnyLeader> {
  /** A name that no other election has. */
  freshName(): string;
  open(name: string): Promise<Candidate<Leader>>;

  /** With a session that somebody else can end. */
  openRevocable(name: string): Promise<Candidate<Leader> & { revoke(): Promise<void> }>;

  /** With calls that go wrong as told, as those of `strike` do. */
  openFaulty(
    name: string,
  ): Promise<Candidate<Leader> & { strike(n: number, fault: Fault): () => boolean }>;

  /** Over a wire that can be broken. */
  openOverWire(name: string): Promise<Candidate<Leader> & { readonly wire: Wire }>;

  /** Those who stand in line, first come first, and how often each has written its value. */
  line(name: string): Promise<readonly { readonly writes: number; erase(): Promise<void> }[]>;

  /** Puts beside the line, and into it where that can be, what is no candidate. */
  addStrangers(name: string): Promise<void>;

  /** Has the servers forget what is over, where they remember it. */
  forget(): Promise<void>;

  /** Rises with each change. */
  changeOf(leader: Leader): bigint;
  close(): Promise<void>;
}

/** What every election here does. */
export function describeElection<Leader extends AnyLeader>(
  name: string,
  faults: readonly Fault[],
  make: () => Promise<ElectionsUnderTest<Leader>>,
): void {
  describe(`an election on ${name}`, () => {
    let elections: ElectionsUnderTest<Leader>;
    const sessions: Candidate<Leader>["session"][] = [];
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

    const kept = async <C extends Candidate<Leader>>(opening: Promise<C>) => {
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

    /** A candidate that stands in line already. */
    const inLine = async <C extends Candidate<Leader>>(name: string, opening: Promise<C>) => {
      const candidate = await kept(opening);
      const before = (await elections.line(name)).length;
      let elected = false;
      const campaign = candidate.election.campaign("waits").then(() => {
        elected = true;
      });
      campaign.catch(() => {});
      await until(async () => (await elections.line(name)).length > before);
      return { ...candidate, campaign, isElected: () => elected };
    };

    /** All that an observer is told. */
    const observe = ({ election }: Candidate<Leader>) => {
      const told: (Leader | undefined)[] = [];
      const stop = new AbortController();
      const ended = (async () => {
        for await (const leader of election.observe({ signal: stop.signal })) told.push(leader);
      })().catch((error) => error);
      observers.push({ stop, ended });
      return { told, values: () => told.map((leader) => leader?.value) };
    };

    test("has one leader, and the next one when that resigns", async () => {
      const name = elections.freshName();
      const first = await leading(name, "first");
      const second = await inLine(name, elections.open(name));
      const known = { ...first.standing(), value: "first" };
      expect(await second.election.leader()).toMatchObject(known);
      await pause(100);
      expect(second.isElected()).toBe(false);
      const notLeading = second.standing();
      expect(await first.election.resign()).toBe("released");
      await second.campaign;
      expect(await first.election.leader()).toMatchObject(second.standing());
      expect(first.election.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
      expect(second.election.signal.aborted).toBe(false);
      await second.election.resign();
      expect(second.standing()).toEqual(notLeading);
      expect(await first.election.leader()).toBeUndefined();
      expect(await second.election.resign()).toBe("was-lost");
    });

    test("passes to the next candidate when the leader's session ends", async () => {
      const name = elections.freshName();
      const { election, session } = await leading(name, "first");
      const second = await inLine(name, elections.open(name));
      await session.close();
      await second.campaign;
      expect(election.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
      await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
      expect(await second.election.leader()).toMatchObject(second.standing());
    });

    test("is observed by three followers through three leaders", async () => {
      const name = elections.freshName();
      const followers = await Promise.all([1, 2, 3].map(async () => observe(await open(name))));
      const allTold = async (value: string | undefined) => {
        for (const { told, values } of followers) {
          await until(() => told.length > 0 && values().at(-1) === value);
        }
      };
      await allTold(undefined);
      for (const value of ["one", "two", "three"]) {
        const { election } = await leading(name, value);
        await allTold(value);
        await election.proclaim(`${value}!`);
        await allTold(`${value}!`);
        await election.resign();
        await allTold(undefined);
      }
      for (const { told } of followers) {
        const changes = told.flatMap((leader) => (leader ? elections.changeOf(leader) : []));
        expect(changes).toEqual([...changes].sort((a, b) => (a < b ? -1 : 1)));
      }
    });

    test("tells an observer first what is: a leader, or that there is none", async () => {
      const name = elections.freshName();
      const candidate = await open(name);
      const none = observe(candidate);
      await until(() => none.told.length > 0);
      expect(none.values()).toEqual([undefined]);
      await candidate.election.campaign("here");
      const some = observe(candidate);
      await until(() => some.told.length > 0);
      expect(some.values()).toEqual(["here"]);
    });

    test("tells observers what the leader proclaims", async () => {
      const name = elections.freshName();
      const leader = await leading(name, "1");
      const before = leader.standing();
      const observer = observe(leader);
      for (const value of ["1", "2", "3"]) {
        await leader.election.proclaim(value);
        await until(() => observer.values().at(-1) === value);
      }
      expect(await elections.line(name)).toMatchObject([{ writes: 4 }]);
      expect(leader.standing()).toEqual(before);
    });

    test("is campaigned for again by its leader, which proclaims", async () => {
      const name = elections.freshName();
      const { election, standing } = await leading(name, "first");
      const before = standing();
      await election.campaign("again");
      expect(standing()).toEqual(before);
      expect(await election.leader()).toMatchObject({ ...before, value: "again" });
      expect(await elections.line(name)).toHaveLength(1);
    });

    test.each(faults)("is resigned from before it is campaigned for again: %s", async (fault) => {
      const name = elections.freshName();
      const { election, standing, strike } = await kept(elections.openFaulty(name));
      await election.campaign("first");
      const before = standing();
      strike(1, fault);
      const resigned = [election.resign(), election.resign()];
      await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
      await election.campaign("again");
      expect(await Promise.all(resigned)).toEqual(["released", "released"]);
      expect(standing()).not.toEqual(before);
      expect(await election.leader()).toMatchObject({ ...standing(), value: "again" });
      expect(election.signal.aborted).toBe(false);
    });

    test("is not held up by what is no candidate", async () => {
      const name = elections.freshName();
      const { election } = await leading(name, "first");
      await election.resign();
      await elections.addStrangers(name);
      await election.campaign("elected");
      expect(await election.leader()).toMatchObject({ value: "elected" });
    });

    test.each(["session is closed", "session is ended by somebody else", "place is gone"])(
      "is never won by a candidate whose %s",
      async (what) => {
        const name = elections.freshName();
        const { election: leader } = await leading(name, "leader");
        const waiter = await inLine(name, elections.openRevocable(name));
        await pause(50);
        if (what === "session is closed") await waiter.session.close();
        else if (what === "place is gone") await (await elections.line(name))[1]?.erase();
        else await waiter.revoke();
        const told = within(AT_ONCE, waiter.campaign);
        await expect(told).rejects.toMatchObject({ code: "SESSION_EXPIRED" });
        expect(leader.signal.aborted).toBe(false);
        await leader.resign();
        expect(waiter.isElected()).toBe(false);
        expect(await leader.leader()).toBeUndefined();
      },
    );

    test("is not campaigned for any longer when the caller gives up", async () => {
      const name = elections.freshName();
      await leading(name, "leader");
      const { election } = await open(name);
      const abort = new AbortController();
      const campaign = election.campaign("never", { signal: abort.signal });
      const outcome = expect(campaign).rejects.toThrow("enough");
      await until(async () => (await elections.line(name)).length === 2);
      abort.abort(new Error("enough"));
      await outcome;
      expect(await elections.line(name)).toHaveLength(1);
    });

    test.each(["place", "session"])(
      "tells its leader at once when the %s is gone",
      async (what) => {
        const name = elections.freshName();
        const { election, revoke } = await kept(elections.openRevocable(name));
        await election.campaign("leader");
        await pause(100);
        if (what === "session") await revoke();
        else await (await elections.line(name))[0]?.erase();
        await until(() => election.signal.aborted, AT_ONCE);
        expect(election.signal.reason).toMatchObject({ code: "SESSION_EXPIRED" });
        await expect(election.proclaim("late")).rejects.toMatchObject({ code: "LOCK_RELEASED" });
        expect(await election.resign()).toBe("was-lost");
      },
    );

    test("was lost when its place is gone, also when the first attempt to resign is lost", async () => {
      const name = elections.freshName();
      const { election, strike } = await kept(elections.openFaulty(name));
      await election.campaign("leader");
      await (await elections.line(name))[0]?.erase();
      await until(() => election.signal.aborted);
      strike(1, "request-lost");
      expect(await election.resign()).toBe("was-lost");
    });

    test("is observed across broken connections, and when the past is forgotten meanwhile", async () => {
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

    test.each(faults)("is won or not, and never left behind, when a call is %s", async (fault) => {
      const used = elections.freshName();
      const names: string[] = [];
      for (const nextName of [elections.freshName, () => used]) {
        for (let n = 1, struck = true; struck; n += 1) {
          const name = nextName();
          names.push(name);
          const { election, session, strike } = await elections.openFaulty(name);
          const isStruck = strike(n, fault);
          const isElected = await election.campaign("flaky").then(
            () => true,
            (error) => void expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" }),
          );
          expect(await elections.line(name)).toHaveLength(isElected ? 1 : 0);
          if (isElected) expect(await election.resign()).toBe("released");
          struck = isStruck();
          await session.close();
        }
      }
      // What is carried out late has been by then.
      await pause(LATE + 50);
      for (const name of names) expect(await elections.line(name)).toEqual([]);
    });
  });
}
