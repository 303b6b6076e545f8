import type { Claim, Claims, Token } from "../../../lock/claims.ts";
import { hasCode, UnknownOutcomeError } from "../../../lock/errors.ts";
import { formatFence } from "../../../lock/fence.ts";
import { holderIdOf, type LockRecord } from "../../../lock/holder.ts";
import type { StoreTraits } from "../../../lock/lock.ts";
import { elapsedSince, type Instant, instant, type Millis } from "../../../lock/time.ts";
import type { Dynamodb, ItemWrite, Written } from "../client/dynamodb.ts";
import type { Item, ItemKey } from "../client/items.ts";
import { Generation } from "./generation.ts";
import { Sightings } from "./sightings.ts";

const TRAITS: StoreTraits = {
  name: "dynamodb",
  fair: false,
  watches: false,
  serverClock: false,
  shared: true,
  lockDelay: true,
  minTtl: 100,
};

/**
 * Locks as items that stay for ever, because of their tokens: `owner` says that a lock is held.
 *
 * DynamoDB has no clock for conditions. A lock expires when a client has seen its version stand still for one ttl.
 */
export class DynamodbClaims implements Claims {
  readonly traits = TRAITS;
  readonly #dynamodb: Dynamodb;
  readonly #closesDynamodb: boolean;
  readonly #generation: Generation;
  readonly #sightings = new Sightings();

  /** The last grant of each owner of this client, by the owner's id. */
  readonly #grants = new Map<string, Grant>();

  constructor(dynamodb: Dynamodb, generationLife: Millis, closesDynamodb: boolean) {
    this.#dynamodb = dynamodb;
    this.#closesDynamodb = closesDynamodb;
    this.#generation = new Generation(dynamodb, generationLife);
  }

  async claim(claim: Claim, signal: AbortSignal): Promise<readonly Token[] | undefined> {
    const { names, owner, ttl } = claim;
    const sentAt = instant();
    const generation = await this.#generation.current(signal);
    const { done, items } = await this.#claimOrReadBack(claim, generation, signal);
    if (done) {
      this.#generation.checkFresh();
      this.#grants.set(holderIdOf(owner), { ttl, sentAt });
      return items.map((item) => toToken(item as Item));
    }
    for (const [i, name] of names.entries()) if (items[i]) this.#sightings.see(name, items[i]);
    const highest = Math.max(...items.map((item) => Number(item?.generation ?? 0)));
    if (highest <= generation) return undefined;
    this.#generation.see(highest);
    return this.claim(claim, signal);
  }

  renew(
    names: readonly string[],
    owner: string,
    ttl: Millis,
    signal: AbortSignal,
    next = owner,
  ): Promise<boolean> {
    const sentAt = instant();
    const last = this.#grants.get(holderIdOf(owner));
    // The ttl of the version counts, so that a short one after a long one would bring the expiry forward.
    const span = Math.max(ttl, last ? last.ttl - elapsedSince(last.sentAt) : 0);
    const renewals = names.map((name) => ({
      key: keyOf(name),
      update: "SET #ttl = :ttl, #owner = :next ADD #version :one",
      when: "#owner IN (:owner, :next)",
      values: { owner, next, ttl: Math.ceil(span), one: 1 },
    }));
    return this.#dynamodb.write(renewals, signal).then(({ done }) => {
      if (done) this.#grants.set(holderIdOf(owner), { ttl: span, sentAt });
      return done;
    });
  }

  async drop(names: readonly string[], owner: string, signal: AbortSignal): Promise<boolean> {
    const drops = names.map((name) => ({
      key: keyOf(name),
      update: "REMOVE #owner",
      when: "#owner = :owner",
      values: { owner },
    }));
    const { done } = await this.#dynamodb.write(drops, signal);
    // Another owner has one of the locks: the others are released all the same.
    if (!done && drops.length > 1) {
      await Promise.all(drops.map((drop) => this.#dynamodb.write([drop], signal)));
    }
    this.#grants.delete(holderIdOf(owner));
    return done;
  }

  async freeIn(names: readonly string[], signal: AbortSignal): Promise<Millis> {
    const items = await this.#read(names, signal);
    const left = names.map((name, i) => this.#sightings.see(name, items[i])?.freeIn ?? 0);
    return Math.max(0, ...left);
  }

  async inspect(name: string): Promise<LockRecord> {
    return this.#toRecord(name, await this.#dynamodb.get(keyOf(name)));
  }

  async list(prefix: string): Promise<readonly LockRecord[]> {
    const filter = "begins_with(#pk, :start) AND attribute_exists(#owner)";
    const found: LockRecord[] = [];
    for await (const items of this.#dynamodb.scan({ filter, values: { start: LOCK + prefix } })) {
      for (const item of items) {
        found.push(this.#toRecord(String(item.pk).slice(LOCK.length), item));
      }
    }
    return found
      .filter(({ holder }) => holder !== undefined)
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  raiseGeneration(least: number): Promise<number> {
    return this.#generation.raise(least);
  }

  async close(): Promise<void> {
    if (this.#closesDynamodb) await this.#dynamodb.close();
  }

  /** Reads the locks after a lost answer: they tell whether the claim was executed. */
  async #claimOrReadBack(claim: Claim, generation: number, signal: AbortSignal): Promise<Written> {
    const { names, owner } = claim;
    let lost: unknown;
    const written = await this.#dynamodb
      .write(this.#updates(claim, generation), signal)
      .catch((error: unknown) => {
        if (!hasCode(error, "UNKNOWN_OUTCOME")) throw error;
        lost = error;
        return { done: true, failed: [], items: [] };
      });
    // A transaction does not return its items, and an update does.
    if (!written.done || written.items.some(Boolean)) return written;
    const items = await this.#read(names, signal).catch(() => []);
    if (items.length > 0 && items.every((item) => item?.owner === owner)) {
      return { done: true, failed: [], items };
    }
    throw lost ?? new UnknownOutcomeError(this.#dynamodb.address, "the locks were taken");
  }

  #updates({ names, owner, ttl, lockDelay }: Claim, generation: number): readonly ItemWrite[] {
    return names.map((name) => {
      const expired = this.#sightings.expired(name);
      const isFree =
        expired === undefined
          ? "attribute_not_exists(#owner)"
          : "(attribute_not_exists(#owner) OR (#version = :expired AND #owner = :expiredOwner))";
      const isLatest = "(attribute_not_exists(#generation) OR #generation <= :generation)";
      return {
        key: keyOf(name),
        update:
          "SET #owner = :owner, #ttl = :ttl, #delay = :delay, #generation = :generation " +
          "ADD #token :one, #version :one",
        when: `${isFree} AND ${isLatest}`,
        values: {
          owner,
          ttl: Math.ceil(ttl),
          delay: Math.ceil(lockDelay),
          generation,
          one: 1,
          ...(expired && { expired: BigInt(expired.version), expiredOwner: expired.owner }),
        },
      };
    });
  }

  #read(names: readonly string[], signal: AbortSignal): Promise<readonly (Item | undefined)[]> {
    return Promise.all(names.map((name) => this.#dynamodb.get(keyOf(name), signal)));
  }

  #toRecord(name: string, item: Item | undefined): LockRecord {
    const expiresIn = this.#sightings.see(name, item)?.expiresIn ?? 0;
    const isHeld = expiresIn > 0;
    const last = item && toToken(item);
    return {
      name,
      holder: isHeld ? item?.owner : undefined,
      expiresIn: isHeld ? expiresIn : undefined,
      fence: last && formatFence(last.generation, last.token),
      waiters: 0,
    };
  }
}

interface Grant {
  readonly ttl: Millis;
  readonly sentAt: Instant;
}

/** The start of the partition keys of locks. */
const LOCK = "lock/";

export function keyOf(name: string): ItemKey {
  return { pk: LOCK + name, sk: "lock" };
}

function toToken({ generation, token }: Item): Token {
  return { generation: Number(generation), token: BigInt(token ?? 0) };
}
