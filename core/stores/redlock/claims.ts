import { HIGHEST_GENERATION, noMoreGenerations } from "../../lock/checks.ts";
import { hasCode, isCertain } from "../../lock/errors.ts";
import type { LockInfo, StoreTraits } from "../../lock/lock.ts";
import type { Claim, Claims, Token } from "../../lock/polling.ts";
import type { Millis } from "../../lock/time.ts";
import { keyOf, ownKey } from "../../redis/names.ts";
import type { Redis } from "../../redis/redis.ts";
import { RedisClaims } from "../redis/claims.ts";
import { combine, isSettled } from "./info.ts";
import { countOf, type Question, Quorum, type Tally } from "./quorum.ts";
import { GENERATION, LIFT } from "./scripts.ts";
import { highest, isSame } from "./tokens.ts";

const traits: StoreTraits = {
  name: "redlock",
  fair: false,
  watches: false,
  serverClock: false,
  shared: true,
  lockDelay: false,
  minTtl: 100,
};

/**
 * To what each master rounds its clock down for tokens: then masters of which the clocks agree to less than a second
 * nearly always give the same token, which saves the second round trip.
 */
const CLOCK_STEP = 1_000_000;

export interface RedlockClaimsOptions {
  readonly prefix: string;

  /** How long a master has for one answer. */
  readonly timeout: Millis;
  readonly closeMasters: boolean;
}

interface Master {
  readonly redis: Redis;
  readonly claims: RedisClaims;
}

type Granted = ReadonlyMap<Master, readonly Token[]>;

/**
 * Locks that count when more than half of the masters have them; each master has them as the store redis does.
 *
 * Why fences rise: before a lock counts, a quorum has counted up to its token while it had that lock. Any later
 * quorum has a master in common with that one, which counts further for the later lock.
 */
export class RedlockClaims implements Claims {
  readonly traits = traits;
  readonly #quorum: Quorum<Master>;
  readonly #options: RedlockClaimsOptions;

  constructor(masters: readonly Redis[], options: RedlockClaimsOptions) {
    const { prefix, timeout, closeMasters } = options;
    const each = { prefix, replicas: undefined, clockStep: CLOCK_STEP, closeRedis: closeMasters };
    this.#options = options;
    this.#quorum = new Quorum(
      traits.name,
      masters.map((redis) => ({ redis, claims: new RedisClaims(redis, each) })),
      timeout,
    );
  }

  async claim(claim: Claim, signal: AbortSignal): Promise<readonly Token[] | undefined> {
    const { needed } = this.#quorum;
    const tally = await this.#quorum.ask(
      ({ claims }, limit) => claims.claim(claim, limit),
      ({ said, pending }) => {
        const granted = grantedBy(said).size;
        if (granted >= needed) return true;
        const canAnswer = said.size >= needed || said.size + pending < needed;
        return granted + pending < needed && canAnswer;
      },
      signal,
    );
    const granted = grantedBy(tally.said);
    if (granted.size >= needed) {
      const tokens = await this.#agree(claim, granted, signal);
      if (tokens !== undefined) return tokens;
    }
    const left = await this.#withdraw(claim, tally);
    if (left < needed && tally.said.size >= needed) return undefined;
    // Where an answer was lost, it is worth asking once more.
    const isOver = left < needed && [...tally.failed.values()].every(isCertain);
    throw isOver
      ? this.#quorum.unavailable(tally)
      : this.#quorum.unknown("a lock was taken", tally);
  }

  async renew(names: readonly string[], owner: string, ttl: Millis, signal: AbortSignal) {
    return this.#quorum.vote("a lock was renewed", signal, ({ claims }, limit) =>
      claims.renew(names, owner, ttl, limit),
    );
  }

  async drop(names: readonly string[], owner: string, signal: AbortSignal) {
    return this.#quorum.vote("a lock was given back", signal, ({ claims }, limit) =>
      dropTwice(claims, names, owner, limit),
    );
  }

  async freeIn(names: readonly string[], signal: AbortSignal): Promise<Millis> {
    const { needed } = this.#quorum;
    const tally = await this.#quorum.ask(
      ({ claims }, limit) => claims.freeIn(names, limit),
      ({ said, pending }) => {
        const free = [...said.values()].filter((left) => left <= 0).length;
        return free >= needed || (said.size >= needed && free + pending < needed);
      },
      signal,
    );
    const left = [...tally.said.values()].sort((a, b) => a - b)[needed - 1];
    if (left === undefined) throw this.#quorum.unavailable(tally);
    return left;
  }

  async inspect(name: string): Promise<LockInfo> {
    const { needed, masters } = this.#quorum;
    const infos = await this.#quorum.look(
      ({ claims }) => claims.inspect(name),
      (said, pending) => isSettled(said, { needed, pending }),
    );
    return combine(name, infos, { needed, silent: masters.length - infos.length });
  }

  async list(prefix: string): Promise<readonly LockInfo[]> {
    const { needed, masters } = this.#quorum;
    const lists = await this.#quorum.look(
      ({ claims }) => claims.list(prefix),
      (said, pending) => [...byName(said).values()].every((i) => isSettled(i, { needed, pending })),
    );
    return [...byName(lists)]
      .map(([name, infos]) =>
        combine(name, infos, { needed, silent: masters.length - lists.length }),
      )
      .filter(({ holder }) => holder !== undefined)
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** First it is known how high a quorum is; what is raised above that is above all that was ever given. */
  async raiseGeneration(least: number): Promise<number> {
    const keys = [ownKey(this.#options.prefix, "generation")];
    const { needed } = this.#quorum;
    const found = await this.#quorum.look(
      async ({ redis }) => Number(await redis.run(GENERATION, { keys })),
      (said) => said.length >= needed,
    );
    const last = Math.max(...found);
    if (last >= HIGHEST_GENERATION) throw noMoreGenerations();
    const goal = Math.max(last + 1, least);
    const raised = await this.#quorum.ask(
      ({ claims }) => claims.raiseGeneration(goal),
      (tally) => tally.said.size >= needed,
    );
    const reached = [...raised.said.values()].sort((a, b) => b - a)[needed - 1];
    if (reached === undefined) throw this.#quorum.unknown("the generation was raised", raised);
    return reached;
  }

  async close(): Promise<void> {
    await this.#quorum.settled();
    await Promise.all(this.#quorum.masters.map(({ claims }) => claims.close()));
  }

  /** The tokens, once a quorum that has the lock has counted up to them; undefined where it has not. */
  async #agree(
    { names, owner }: Claim,
    granted: Granted,
    signal: AbortSignal,
  ): Promise<readonly Token[] | undefined> {
    const { needed } = this.#quorum;
    const tokens = highest([...granted.values()]);
    const there = [...granted.values()].filter((each) => isSame(each, tokens));
    if (there.length >= needed) return tokens;
    const { prefix } = this.#options;
    const kinds = ["lock", "fence"].flatMap((kind) => names.map((n) => keyOf(prefix, kind, n)));
    const keys = [...kinds, ownKey(prefix, "generation")];
    const args = [owner, tokens[0]?.generation ?? 0, ...tokens.map(({ token }) => String(token))];
    const votes = await this.#quorum.ask(
      async ({ redis }, limit) => (await redis.run(LIFT, { keys, args, signal: limit })) === "1",
      (tally) => countOf(tally, true) >= needed || countOf(tally, true) + tally.pending < needed,
      signal,
    );
    return countOf(votes, true) >= needed ? tokens : undefined;
  }

  /** Drops what was or may have been granted. Resolves to how many masters may still have it. */
  async #withdraw({ names, owner }: Claim, tally: Tally<Master, unknown>): Promise<number> {
    const { said, failed } = tally;
    const drop: Question<Master, true> = async ({ claims }, limit) => {
      await dropTwice(claims, names, owner, limit);
      return true;
    };
    const dropping = this.#quorum.masters.flatMap((master) => {
      if (said.has(master)) {
        return said.get(master) === undefined ? [] : [this.#quorum.tell(master, drop)];
      }
      // Where a claim is still under way, what follows it over the same connection comes after it.
      return isCertain(failed.get(master)) ? [] : [this.#quorum.hint(master, drop)];
    });
    const dropped = await Promise.allSettled(dropping);
    return dropped.filter((each) => each.status === "rejected" || !each.value).length;
  }
}

/**
 * A quorum's answer is not waited for by the others, and nobody asks them again: so each is asked once more where a
 * connection has ended. A no then is none: it may be the answer to what was carried out before.
 */
async function dropTwice(
  claims: RedisClaims,
  names: readonly string[],
  owner: string,
  limit: AbortSignal,
): Promise<boolean> {
  try {
    return await claims.drop(names, owner, limit);
  } catch (error) {
    if (limit.aborted || hasCode(error, "STORE_REFUSED", "STORE_CLOSED")) throw error;
    const isOurs = await claims.drop(names, owner, limit);
    if (isOurs || isCertain(error)) return isOurs;
    throw error;
  }
}

function grantedBy(said: ReadonlyMap<Master, readonly Token[] | undefined>): Granted {
  return new Map([...said].flatMap(([master, tokens]) => (tokens ? [[master, tokens]] : [])));
}

function byName(lists: readonly (readonly LockInfo[])[]): ReadonlyMap<string, LockInfo[]> {
  return Map.groupBy(lists.flat(), ({ name }) => name);
}
