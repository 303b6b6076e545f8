import { sleep } from "./abort.ts";
import { answerTo, giveBack, pause } from "./answers.ts";
import type { Backend, Hold, LockRequest } from "./backend.ts";
import {
  hasCode,
  isCertain,
  LockLostError,
  type LossReason,
  StoreUnavailableError,
} from "./errors.ts";
import { type Fence, issueFence } from "./fence.ts";
import { Life } from "./life.ts";
import type { LockInfo, StoreTraits, Unlocked } from "./lock.ts";
import { elapsedSince, type Instant, instant, type Millis } from "./time.ts";

/** The place of a claim in the order of all claims on its name. */
export interface Token {
  readonly generation: number;
  readonly token: bigint;
}

/**
 * A store that keeps one record per lock: three compare-and-set writes, and `pollingBackend` does the rest.
 *
 * Each write concerns all of `names` or none. It rejects with a StoreUnavailableError or StoreRefusedError
 * only when it has certainly not happened, and gives up when `signal` aborts: then it may still happen later.
 */
export interface Claims {
  readonly traits: StoreTraits;

  /** Takes what is free or expired. Resolves to tokens in the order of `names`, or to undefined: busy. */
  claim(claim: Claim, signal: AbortSignal): Promise<readonly Token[] | undefined>;

  /** Moves the owner's expiry to `ttl` from now, never back. False: not ours, or expired. */
  renew(
    names: readonly string[],
    owner: string,
    ttl: Millis,
    signal: AbortSignal,
  ): Promise<boolean>;

  /** Removes the owner's claim. False: it was not ours, or expired. */
  drop(names: readonly string[], owner: string, signal: AbortSignal): Promise<boolean>;

  /**
   * Milliseconds until all of `names` are free unless renewed; 0 when they are.
   *
   * A read, which blocks nobody: it rejects with a StoreUnavailableError however its answer was lost.
   */
  freeIn(names: readonly string[], signal: AbortSignal): Promise<Millis>;

  /** Where waiters are told of a release: how to wait for `names`. Without it, `freeIn` is asked again and again. */
  stand?(names: readonly string[], owner: string): Turn;

  inspect(name: string): Promise<LockInfo>;
  list(prefix: string): Promise<readonly LockInfo[]>;
  raiseGeneration(least: number): Promise<number>;
  close(): Promise<void>;
}

export interface Claim {
  readonly names: readonly string[];
  readonly owner: string;
  readonly ttl: Millis;
  readonly lockDelay: Millis;
}

/**
 * Waits until a claim may be worth its while again, for `left` at the most.
 *
 * It rejects with the signal's reason when that aborts, and as `freeIn` does. Once it has settled, nobody waits.
 */
export type Turn = (left: Millis, signal: AbortSignal) => Promise<void>;

/** Turns claims into a backend: asks until it may have the lock, when it is told to or with growing pauses. */
export function pollingBackend(claims: Claims, label: string): Backend {
  return {
    traits: claims.traits,
    acquire: (request) => new Attempt(claims, request, newOwner(label)).acquire(),
    inspect: (name) => claims.inspect(name),
    list: (prefix) => claims.list(prefix),
    raiseGeneration: (least) => claims.raiseGeneration(least),
    close: () => claims.close(),
  };
}

/** Never the same twice, so that nobody releases what is not theirs; the label is for humans. */
function newOwner(label: string): string {
  return `${label}/${crypto.randomUUID()}`;
}

interface Granted {
  readonly fences: readonly Fence[];
  readonly sentAt: Instant;
}

/** One owner's way through claim, renewal and release. */
class Attempt {
  readonly #claims: Claims;
  readonly #request: LockRequest;
  readonly #owner: string;
  readonly #turn: Turn | undefined;

  constructor(claims: Claims, request: LockRequest, owner: string) {
    this.#claims = claims;
    this.#request = request;
    this.#owner = owner;
    this.#turn = claims.stand?.(request.names, owner);
  }

  async acquire(): Promise<Hold | undefined> {
    const { wait } = this.#request;
    const startedAt = instant();
    let answered = false;
    for (let look = 0; ; look += 1) {
      try {
        if (look === 0 || this.#turn || (await this.#isFree())) {
          const hold = await this.#claim();
          if (hold) return hold;
        }
        answered = true;
      } catch (error) {
        // Who already stood in line outlasts a restart of the store; who has yet to reach it is told at once.
        if (!answered || !hasCode(error, "STORE_UNAVAILABLE")) throw error;
      }
      const left = wait - elapsedSince(startedAt);
      if (left <= 0) return undefined;
      await this.#rest(look, left);
    }
  }

  /** Until it may be worth looking again. */
  async #rest(look: number, left: Millis): Promise<void> {
    const { signal } = this.#request;
    try {
      if (this.#turn) return await this.#turn(left, signal);
    } catch (error) {
      if (!hasCode(error, "STORE_UNAVAILABLE")) throw error;
    }
    await sleep(Math.min(pause(look), left), signal);
  }

  async #isFree(): Promise<boolean> {
    const { names, ttl, signal } = this.#request;
    return (await answerTo((limit) => this.#claims.freeIn(names, limit), ttl, signal)) <= 0;
  }

  async #claim(): Promise<Hold | undefined> {
    const { signal } = this.#request;
    const granted = await this.#ask();
    if (granted === undefined) return undefined;
    const hold = this.#hold(granted);
    if (hold.life.remaining() > 0 && !signal.aborted) return hold;
    hold.life.end("released");
    await this.#drop(0);
    signal.throwIfAborted();
    throw this.#noHelp("its answer took longer than the ttl");
  }

  /** A claim whose answer was lost may have been granted: it is withdrawn, and asked for once more. */
  async #ask(): Promise<Granted | undefined> {
    const { names, ttl, lockDelay, signal } = this.#request;
    const claim = { names, owner: this.#owner, ttl, lockDelay };
    for (let lost = 0; ; lost += 1) {
      const sentAt = instant();
      try {
        const tokens = await answerTo((limit) => this.#claims.claim(claim, limit), ttl, signal);
        return tokens && { fences: this.#issue(tokens), sentAt };
      } catch (error) {
        if (isCertain(error)) throw error;
        await this.#drop(0);
        signal.throwIfAborted();
        if (lost > 0) throw this.#noHelp("two claims had no good answer", error);
      }
    }
  }

  /** Throws for a token out of range: a claim with such an answer is withdrawn too. */
  #issue(tokens: readonly Token[]): readonly Fence[] {
    return this.#request.names.map((name, i) => {
      const { generation, token } = tokens[i] as Token;
      return issueFence(name, generation, token, this.#owner);
    });
  }

  #hold({ fences, sentAt }: Granted): Hold {
    const { names, ttl, renew, maxHold, notify } = this.#request;
    const owner = this.#owner;
    const life = new Life({
      names,
      ttl,
      sentAt,
      auto: renew,
      maxHold,
      notify,
      lost: (why) => new LockLostError(names, why),
      renew: async (span, limit) => {
        const grant = { ttl: span, sentAt: instant() };
        return (await this.#claims.renew(names, owner, span, limit)) ? grant : undefined;
      },
    });
    return { fences, life, release: (why) => this.#release(life, why) };
  }

  async #release(life: Life, why: LossReason): Promise<Unlocked> {
    const left = life.remaining();
    life.end(why);
    return (await this.#drop(left)) && left > 0 ? "released" : "was-lost";
  }

  #noHelp(problem: string, cause?: unknown): StoreUnavailableError {
    return new StoreUnavailableError(this.#claims.traits.name, problem, cause);
  }

  /** Drops the claim, which was ours for `ours` milliseconds more. */
  #drop(ours: Millis): Promise<boolean> {
    const { names, ttl } = this.#request;
    return giveBack({
      drop: (limit) => this.#claims.drop(names, this.#owner, limit),
      store: this.#claims.traits.name,
      names,
      ttl,
      ours,
    });
  }
}
