import { HIGHEST_GENERATION, noMoreGenerations } from "../../lock/checks.ts";
import type { Claim, Claims, Token } from "../../lock/claims.ts";
import { hasCode, isCertain } from "../../lock/errors.ts";
import type { LockRecord } from "../../lock/holder.ts";
import type { StoreTraits } from "../../lock/lock.ts";
import type { Millis } from "../../lock/time.ts";
import { keyOf, ownKey } from "../redis/client/names.ts";
import type { Redis } from "../redis/client/redis.ts";
import { RedisClaims, SeenGeneration } from "../redis/locks/claims.ts";
import { combine, isSettled } from "./info.ts";
import { type Answers, countVotes, type MasterRequest, Quorum } from "./quorum.ts";
import { GET_GENERATION, RAISE_TOKENS } from "./scripts.ts";

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
 * The step to which each master rounds its clock down for tokens, in microseconds. Masters whose clocks differ by less
 * than a second nearly always give the same token, which saves a second round trip.
 */
const CLOCK_STEP = 1_000_000;

export interface RedlockClaimsOptions {
  readonly prefix: string;

  /** The longest wait for one answer of a master. */
  readonly timeout: Millis;
  readonly closeMasters: boolean;
}

interface Master {
  readonly redis: Redis;
  readonly claims: RedisClaims;
}

type Granted = ReadonlyMap<Master, readonly Token[]>;

/**
 * Locks that are valid when more than half of the masters have them. Each master keeps a lock as the Redis store does.
 *
 * Why fences rise: before a lock is valid, a quorum has reached its token while it had the lock. Any later quorum shares
 * a master with that quorum, and this master gives the later lock a higher token.
 */
export class RedlockClaims implements Claims {
  readonly traits = traits;
  readonly #quorum: Quorum<Master>;
  readonly #options: RedlockClaimsOptions;
  readonly #seen = new SeenGeneration();

  constructor(masters: readonly Redis[], options: RedlockClaimsOptions) {
    const { prefix, timeout, closeMasters: closeRedis } = options;
    const each = {
      prefix,
      clockStep: CLOCK_STEP,
      seen: this.#seen,
      closeRedis,
    };
    this.#options = options;
    this.#quorum = new Quorum(
      traits.name,
      masters.map((redis) => ({ redis, claims: new RedisClaims(redis, each) })),
      timeout,
    );
  }

  async claim(claim: Claim, signal: AbortSignal): Promise<readonly Token[] | undefined> {
    const { needed } = this.#quorum;
    const tally = await this.#quorum.requestAll(
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
      const tokens = await this.#agreeOnTokens(claim, granted, signal);
      if (tokens !== undefined) return tokens;
    }
    const left = await this.#withdraw(claim, tally);
    if (left < needed && tally.said.size >= needed) return undefined;
    // After a lost answer, a repetition may succeed.
    const isOver = left < needed && [...tally.failed.values()].every(isCertain);
    throw isOver
      ? this.#quorum.unavailable(tally)
      : this.#quorum.unknown("a lock was taken", tally);
  }

  async renew(
    names: readonly string[],
    owner: string,
    ttl: Millis,
    signal: AbortSignal,
    next?: string,
  ) {
    return this.#quorum.vote("a lock was renewed", signal, ({ claims }, limit) =>
      claims.renew(names, owner, ttl, limit, next),
    );
  }

  async drop(names: readonly string[], owner: string, signal: AbortSignal) {
    return this.#quorum.vote("a lock was released", signal, ({ claims }, limit) =>
      dropWithRetry(claims, names, owner, limit),
    );
  }

  async freeIn(names: readonly string[], signal: AbortSignal): Promise<Millis> {
    const { needed } = this.#quorum;
    const tally = await this.#quorum.requestAll(
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

  async inspect(name: string): Promise<LockRecord> {
    const { needed, masters } = this.#quorum;
    const infos = await this.#quorum.read(
      ({ claims }) => claims.inspect(name),
      (said, pending) => isSettled(said, { needed, pending }),
    );
    return combine(name, infos, { needed, silent: masters.length - infos.length });
  }

  async list(prefix: string): Promise<readonly LockRecord[]> {
    const { needed, masters } = this.#quorum;
    const lists = await this.#quorum.read(
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

  /** Reads the generation of a quorum first: a generation above it is above all that were ever used. */
  async raiseGeneration(least: number): Promise<number> {
    const keys = [ownKey(this.#options.prefix, "generation")];
    const { needed } = this.#quorum;
    const found = await this.#quorum.read(
      async ({ redis }) => Number(await redis.run(GET_GENERATION, { keys })),
      (said) => said.length >= needed,
    );
    const last = Math.max(this.#seen.highest, ...found);
    if (last >= HIGHEST_GENERATION) throw noMoreGenerations();
    const goal = Math.max(last + 1, least);
    const raised = await this.#quorum.requestAll(
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

  /** Resolves to the tokens once a quorum with the lock has reached them; otherwise to undefined. */
  async #agreeOnTokens(
    { names, owner }: Claim,
    granted: Granted,
    signal: AbortSignal,
  ): Promise<readonly Token[] | undefined> {
    const { needed } = this.#quorum;
    const tokens = highestTokens([...granted.values()]);
    const there = [...granted.values()].filter((each) => areEqualTokens(each, tokens));
    if (there.length >= needed) return tokens;
    const { prefix } = this.#options;
    const kinds = ["lock", "fence"].flatMap((kind) => names.map((n) => keyOf(prefix, kind, n)));
    const keys = [...kinds, ownKey(prefix, "generation")];
    const args = [owner, tokens[0]?.generation ?? 0, ...tokens.map(({ token }) => String(token))];
    const votes = await this.#quorum.requestAll(
      async ({ redis }, limit) =>
        (await redis.run(RAISE_TOKENS, { keys, args, signal: limit })) === "1",
      (tally) =>
        countVotes(tally, true) >= needed || countVotes(tally, true) + tally.pending < needed,
      signal,
    );
    return countVotes(votes, true) >= needed ? tokens : undefined;
  }

  /** Drops a claim that was or may have been granted. Resolves to how many masters may still have it. */
  async #withdraw({ names, owner }: Claim, tally: Answers<Master, unknown>): Promise<number> {
    const { said, failed } = tally;
    const drop: MasterRequest<Master, true> = async ({ claims }, limit) => {
      await dropWithRetry(claims, names, owner, limit);
      return true;
    };
    const dropping = this.#quorum.masters.flatMap((master) => {
      if (said.has(master)) {
        return said.get(master) === undefined ? [] : [this.#quorum.request(master, drop)];
      }
      // A drop that follows a claim over the same connection is executed after the claim.
      return isCertain(failed.get(master)) ? [] : [this.#quorum.requestBriefly(master, drop)];
    });
    const dropped = await Promise.allSettled(dropping);
    return dropped.filter((each) => each.status === "rejected" || !each.value).length;
  }
}

/**
 * Drops the claim on one master, and repeats the drop once after a broken connection: the quorum does not wait for all
 * masters, and does not ask them again. "Not held" then proves nothing, since the first drop may have been executed.
 */
async function dropWithRetry(
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

function byName(lists: readonly (readonly LockRecord[])[]): ReadonlyMap<string, LockRecord[]> {
  return Map.groupBy(lists.flat(), ({ name }) => name);
}

/** Returns the highest token of each name, and the highest generation of all. */
function highestTokens(all: readonly (readonly Token[])[]): readonly Token[] {
  const generation = Math.max(...all.flat().map((token) => token.generation));
  const [first = [], ...rest] = all;
  return first.map(({ token }, i) => {
    const others = rest.map((tokens) => tokens[i]?.token ?? 0n);
    return { generation, token: others.reduce((a, b) => (a > b ? a : b), token) };
  });
}

function areEqualTokens(a: readonly Token[], b: readonly Token[]): boolean {
  return a.every(
    ({ generation, token }, i) => generation === b[i]?.generation && token === b[i]?.token,
  );
}
