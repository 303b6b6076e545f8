import { HIGHEST_GENERATION, noMoreGenerations } from "../../../lock/checks.ts";
import type { Claim, Claims, Token } from "../../../lock/claims.ts";
import { UnknownOutcomeError } from "../../../lock/errors.ts";
import { formatFence } from "../../../lock/fence.ts";
import { describeWaiter, type LockRecord, MOST_WAITERS } from "../../../lock/holder.ts";
import type { StoreTraits, WaiterInfo } from "../../../lock/lock.ts";
import type { Millis } from "../../../lock/time.ts";
import { nameOf, patternOf } from "../client/names.ts";
import type { Redis, Reply, Script, ScriptInput } from "../client/redis.ts";
import type { ReplicatedWrites } from "../client/replicas.ts";
import { scan } from "../client/scan.ts";
import { holderIdIn, LockKeys } from "./keys.ts";
import { CLAIM, DROP, FREE_IN, INSPECT, RAISE, RENEW } from "./scripts.ts";

export const TRAITS: StoreTraits = {
  name: "redis",
  fair: false,
  watches: false,
  serverClock: true,
  shared: true,
  lockDelay: false,
  minTtl: 10,
};

export interface ClaimsOptions {
  readonly prefix: string;

  /** The replicas that must confirm a claim or renewal. Default none. */
  readonly replicated?: ReplicatedWrites | undefined;

  /** The step to which the clock is rounded down for tokens, in microseconds. Default 1. */
  readonly clockStep?: number;

  /** Shared by the masters of one client. Default: not shared. */
  readonly seen?: SeenGeneration;
  readonly closeRedis: boolean;
}

/**
 * Locks as keys that expire, with the owner as value. The tokens of fences are in keys that do not expire. Waiters poll;
 * those of NotifiedClaims are woken.
 */
export class RedisClaims implements Claims {
  readonly traits: StoreTraits = TRAITS;
  readonly keys: LockKeys;
  readonly #redis: Redis;
  readonly #options: ClaimsOptions;
  readonly #seen: SeenGeneration;

  constructor(redis: Redis, options: ClaimsOptions) {
    this.keys = new LockKeys(options.prefix);
    this.#redis = redis;
    this.#options = options;
    this.#seen = options.seen ?? new SeenGeneration();
  }

  async claim({ names, owner, ttl }: Claim, signal: AbortSignal) {
    const keys = this.keys.of(names, "lock", "turn", "fence");
    keys.push(this.keys.generation);
    const step = this.#options.clockStep ?? 1;
    const args = [owner, Math.ceil(ttl), step, this.#seen.highest];
    const reply = await this.#write(CLAIM, { keys, args, signal });
    if (reply === undefined) return undefined;
    const [generation, ...tokens] = reply as readonly string[];
    this.#seen.see(Number(generation));
    return tokens.map((token): Token => ({ generation: Number(generation), token: BigInt(token) }));
  }

  async renew(
    names: readonly string[],
    owner: string,
    ttl: Millis,
    signal: AbortSignal,
    next?: string,
  ) {
    const keys = [...this.keys.of(names, "lock"), this.keys.generation];
    const args = [owner, Math.ceil(ttl), this.#seen.highest, ...(next === undefined ? [] : [next])];
    return (await this.#write(RENEW, { keys, args, signal })) === "1";
  }

  async drop(names: readonly string[], owner: string, signal: AbortSignal) {
    const keys = this.keys.of(names, "lock", "turn", "wait");
    const args = [this.keys.channels, owner];
    return (await this.#redis.run(DROP, { keys, args, signal })) === "1";
  }

  async freeIn(names: readonly string[], signal: AbortSignal): Promise<Millis> {
    const left = Number(
      await this.#redis.run(FREE_IN, { keys: this.keys.of(names, "lock"), signal }),
    );
    return left === -1 ? Number.POSITIVE_INFINITY : Math.max(0, left);
  }

  async inspect(name: string): Promise<LockRecord> {
    const [info] = await this.#inspect([name], MOST_WAITERS);
    return info as LockRecord;
  }

  async list(prefix: string): Promise<readonly LockRecord[]> {
    const { prefix: keyPrefix } = this.#options;
    const pattern = patternOf(keyPrefix, "lock", prefix);
    const found = new Map<string, LockRecord>();
    for await (const keys of scan(this.#redis, keyPrefix, pattern)) {
      const names = keys.map((key) => nameOf(keyPrefix, "lock", key));
      for (const { queue: _, ...info } of await this.#inspect(names, 0)) found.set(info.name, info);
    }
    return [...found.values()]
      .filter(({ holder }) => holder !== undefined)
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async raiseGeneration(least: number): Promise<number> {
    const input = { keys: [this.keys.generation], args: [least, this.#seen.highest] };
    const raised = await this.#redis.run(RAISE, input);
    if (raised === undefined) throw noMoreGenerations();
    this.#seen.see(Number(raised));
    return Number(raised);
  }

  async close(): Promise<void> {
    if (this.#options.closeRedis) await this.#redis.close();
  }

  /** Also rejects with an UnknownOutcomeError when too few replicas have confirmed the write. */
  async #write(script: Script, input: ScriptInput): Promise<Reply> {
    const { replicated } = this.#options;
    if (!replicated) return await this.#redis.run(script, input);
    const { reply, confirmed } = await replicated.run(script, input);
    if (confirmed >= replicated.count || reply === undefined) return reply;
    const what = `${replicated.count} replicas have the lock: ${confirmed} confirmed it in time`;
    throw new UnknownOutcomeError(this.#redis.address, what);
  }

  /** Also reads the first waiters of each lock. */
  async #inspect(names: readonly string[], waiters: number): Promise<readonly LockRecord[]> {
    const keys = [...this.keys.of(names, "lock", "fence", "wait"), this.keys.generation];
    const input = { keys, args: [waiters] };
    const [generation, ...found] = (await this.#redis.run(INSPECT, input)) as Inspected;
    this.#seen.see(Number(generation));
    return names.map((name, i) => toInfo(name, Number(generation), found[i] as Found));
  }
}

type Found = readonly [
  owner: string | undefined,
  left: string,
  token: string | undefined,
  waiters: string,
  queue: readonly string[],
];
type Inspected = readonly [generation: string, ...Found[]];

function toInfo(
  name: string,
  generation: number,
  [holder, left, token, waiters, queue]: Found,
): LockRecord {
  const expiresIn = holder === undefined || left === "-1" ? undefined : Math.max(0, Number(left));
  const fence = token === undefined ? undefined : formatFence(generation, BigInt(token));
  return { name, holder, expiresIn, fence, waiters: Number(waiters), queue: toWaiters(queue) };
}

/** Reads the queue's entries, each followed by the time of its arrival in microseconds. */
function toWaiters(queue: readonly string[]): readonly WaiterInfo[] {
  return queue.flatMap((waiter, i) => {
    if (i % 2 === 1) return [];
    const since = new Date(Number(queue[i + 1]) / 1_000);
    return [{ ...describeWaiter(holderIdIn(waiter)), since }];
  });
}

/** The highest generation that a client has seen, for servers that may have lost their data. */
export class SeenGeneration {
  #highest = 0;

  get highest(): number {
    return this.#highest;
  }

  /** Ignores invalid generations: the client would restore them after an operator has removed them. */
  see(generation: number): void {
    if (generation > this.#highest && generation <= HIGHEST_GENERATION) this.#highest = generation;
  }
}
