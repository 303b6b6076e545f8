import { noMoreGenerations } from "../../lock/checks.ts";
import { UnknownOutcomeError } from "../../lock/errors.ts";
import { formatFence } from "../../lock/fence.ts";
import type { LockInfo, StoreTraits } from "../../lock/lock.ts";
import type { Claim, Claims, Token, Turn } from "../../lock/polling.ts";
import type { Millis } from "../../lock/time.ts";
import { keyOf, nameOf, ownKey, patternOf } from "../../redis/names.ts";
import type { Input, Redis, Replicas, Reply, Script } from "../../redis/redis.ts";
import { Ear } from "./ear.ts";
import { CLAIM, DROP, FREE_IN, LOOK, RAISE, RENEW } from "./scripts.ts";
import { Waiter } from "./waiter.ts";

const traits: StoreTraits = {
  name: "redis",
  fair: false,
  watches: true,
  serverClock: true,
  shared: true,
  lockDelay: false,
  minTtl: 10,
};

/** How many keys one step of a list looks at. */
const SCANNED = 500;

export interface ClaimsOptions {
  readonly prefix: string;

  /** Which replicas must have a claim or renewal before it counts. */
  readonly replicas: Replicas | undefined;
  readonly closeRedis: boolean;
}

/** Locks as keys that expire, whose value is the owner; what fences are counted from is in keys that do not. */
export class RedisClaims implements Claims {
  readonly traits = traits;
  readonly #redis: Redis;
  readonly #options: ClaimsOptions;
  readonly #client = crypto.randomUUID();
  readonly #ear: Ear;

  constructor(redis: Redis, options: ClaimsOptions) {
    this.#redis = redis;
    this.#options = options;
    this.#ear = new Ear(redis, this.#channels + this.#client);
  }

  async claim({ names, owner, ttl }: Claim, signal: AbortSignal) {
    const keys = [...this.#keys(names, "lock", "turn", "fence"), this.#generation];
    const args = [owner, Math.ceil(ttl), this.#waiter(owner)];
    const reply = await this.#write(CLAIM, { keys, args, signal });
    if (reply === undefined) return undefined;
    const [generation, ...tokens] = reply as readonly string[];
    return tokens.map((token): Token => ({ generation: Number(generation), token: BigInt(token) }));
  }

  async renew(names: readonly string[], owner: string, ttl: Millis, signal: AbortSignal) {
    const keys = this.#keys(names, "lock");
    return (await this.#write(RENEW, { keys, args: [owner, Math.ceil(ttl)], signal })) === "1";
  }

  async drop(names: readonly string[], owner: string, signal: AbortSignal) {
    const keys = this.#keys(names, "lock", "turn", "wait");
    return (await this.#redis.run(DROP, { keys, args: [this.#channels, owner], signal })) === "1";
  }

  async freeIn(names: readonly string[], signal: AbortSignal): Promise<Millis> {
    const left = Number(
      await this.#redis.run(FREE_IN, { keys: this.#keys(names, "lock"), signal }),
    );
    return left === -1 ? Number.POSITIVE_INFINITY : Math.max(0, left);
  }

  stand(names: readonly string[], owner: string): Turn {
    const waiter = new Waiter({
      redis: this.#redis,
      ear: this.#ear,
      id: this.#waiter(owner),
      keys: this.#keys(names, "lock", "turn", "wait"),
      channels: this.#channels,
    });
    return (left, signal) => waiter.turn(left, signal);
  }

  async inspect(name: string): Promise<LockInfo> {
    const [info] = await this.#look([name]);
    return info as LockInfo;
  }

  async list(prefix: string): Promise<readonly LockInfo[]> {
    const pattern = patternOf(this.#options.prefix, "lock", prefix);
    const found = new Map<string, LockInfo>();
    for (let cursor = "0"; ; ) {
      const scan = ["SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED] as const;
      const [next, keys] = (await this.#redis.call(scan, { reads: true })) as [string, string[]];
      const names = keys.map((key) => nameOf(this.#options.prefix, "lock", key));
      for (const info of await this.#look(names)) found.set(info.name, info);
      cursor = next;
      if (cursor === "0") break;
    }
    return [...found.values()]
      .filter(({ holder }) => holder !== undefined)
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async raiseGeneration(least: number): Promise<number> {
    const raised = await this.#redis.run(RAISE, { keys: [this.#generation], args: [least] });
    if (raised === undefined) throw noMoreGenerations();
    return Number(raised);
  }

  async close(): Promise<void> {
    this.#ear.close();
    if (this.#options.closeRedis) await this.#redis.close();
  }

  /** Rejects with an UnknownOutcomeError, too, when too few replicas have what was written. */
  async #write(script: Script, input: Input): Promise<Reply> {
    const { replicas } = this.#options;
    if (replicas === undefined) return this.#redis.run(script, input);
    const { reply, confirmed } = await this.#redis.runOnReplicas(script, input, replicas);
    if (confirmed >= replicas.count || reply === undefined) return reply;
    const what = `${replicas.count} replicas have the lock: ${confirmed} have said so in time`;
    throw new UnknownOutcomeError(this.#redis.address, what);
  }

  async #look(names: readonly string[]): Promise<readonly LockInfo[]> {
    const keys = [...this.#keys(names, "lock", "fence"), this.#generation];
    const [generation, ...found] = (await this.#redis.run(LOOK, { keys })) as Looked;
    return names.map((name, i) => toInfo(name, Number(generation), found[i] as Found));
  }

  /** The keys of the first kind for all names, then those of the next. */
  #keys(names: readonly string[], ...kinds: readonly string[]): readonly string[] {
    const { prefix } = this.#options;
    return kinds.flatMap((kind) => names.map((name) => keyOf(prefix, kind, name)));
  }

  #waiter(owner: string): string {
    return `${this.#client}/${owner}`;
  }

  get #generation(): string {
    return ownKey(this.#options.prefix, "generation");
  }

  /** What the channel of every client begins with. */
  get #channels(): string {
    return keyOf(this.#options.prefix, "wake", "");
  }
}

type Found = readonly [owner: string | undefined, left: string, token: string | undefined];
type Looked = readonly [generation: string, ...Found[]];

function toInfo(name: string, generation: number, [holder, left, token]: Found): LockInfo {
  const expiresIn = holder === undefined || left === "-1" ? undefined : Math.max(0, Number(left));
  const fence = token === undefined ? undefined : formatFence(generation, BigInt(token));
  return { name, holder, expiresIn, fence, waiters: 0 };
}
