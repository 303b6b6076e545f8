import { sleep } from "./abort.ts";
import { releaseUntilKnown, requestPauses, withinAttempt } from "./attempts.ts";
import type { Backend, Hold, LockRequest } from "./backend.ts";
import type { Claims, ReleaseSubscription, Token, WaitForTurn } from "./claims.ts";
import {
  hasCode,
  isCertain,
  LockLostError,
  type LossReason,
  StoreUnavailableError,
} from "./errors.ts";
import { type Fence, issueFence } from "./fence.ts";
import {
  describeHolder,
  describeLock,
  describeWaiter,
  type HolderWork,
  newHolderId,
} from "./holder.ts";
import { INCIDENT_LIFE, INCIDENT_SLOTS, type IncidentSlots } from "./incidents.ts";
import { Lease } from "./lease.ts";
import type { Unlocked } from "./lock.ts";
import { Notifier } from "./notifier.ts";
import { type Backoff, backoff, retry } from "./retry.ts";
import { elapsedSince, type Instant, instant, LONGEST_CALL, type Millis } from "./time.ts";

/** The options that the holders of a client have in common. */
export interface HolderOptions extends Pick<HolderWork, "command"> {
  readonly label: string;
}

/** Turns claims into a backend: claims again on each turn, or with growing pauses. */
export function pollingBackend(claims: Claims, holder: HolderOptions): Backend {
  return {
    traits: claims.traits,
    wakeUps: claims.wakeUps,
    incidents: claimedSlots(claims),
    acquire: (request) => new Acquisition(claims, request, holder).acquire(),
    whenFree: (name, signal) => whenFree(claims, name, signal),
    async find(name) {
      const record = await claims.inspect(name);
      const { holder = "" } = record;
      return {
        info: describeLock(record),
        drop: (limit) => claims.drop([name], holder, limit),
      };
    },
    list: async (prefix) => (await claims.list(prefix)).map(describeLock),
    raiseGeneration: (least) => claims.raiseGeneration(least),
    close: () => claims.close(),
  };
}

/** The beginning of the names of the locks that are slots of incidents. */
const INCIDENT = "%lockstep/incident/";

/** Whether a lock is a slot of an incident: lists leave it out. */
export function isIncidentSlot({ name }: { readonly name: string }): boolean {
  return name.startsWith(INCIDENT);
}

/** Slots as locks that nobody holds, with the text as their owner. They expire. */
function claimedSlots(claims: Claims): IncidentSlots {
  const names = Array.from({ length: INCIDENT_SLOTS }, (_, slot) => INCIDENT + slot);
  return {
    read: () => Promise.all(names.map(async (name) => (await claims.inspect(name)).holder)),
    async write(slot, owner, signal) {
      const name = INCIDENT + slot;
      const { holder } = await claims.inspect(name);
      if (holder !== undefined) await claims.drop([name], holder, signal);
      const claim = { names: [name], owner, ttl: INCIDENT_LIFE, lockDelay: 0 };
      return (await claims.claim(claim, signal)) !== undefined;
    },
  };
}

/** The pauses between two reads of a lock without releases that are published. */
const POLL: Backoff = { base: 50, max: 500 };

/** The longest pause between two reads where releases are published: one may be lost. */
const LONGEST_POLL: Millis = 5_000;

/** The same for a waiter, before jitter. */
export const CHECK_EVERY: Millis = 2_000;

/** The longest time between a lock's expiry and the read of a waiter: waiters do not read all at once. */
const SPREAD: Millis = 50;

/** The pause after a release before the read: a waiter that has lost several races for the lock lets others go first. */
const AFTER_RELEASE: Backoff = { base: 1, factor: 2, max: 250, jitter: "full" };

/** When a waiter that is told of releases reads a lock again that expires in `expiresIn`. */
export function checkIn(expiresIn: Millis): Millis {
  const expired = expiresIn + SPREAD * Math.random();
  return Math.min(expired, CHECK_EVERY * (0.5 + Math.random() / 2));
}

/** Reads the lock after each release that is published, and when it may have expired; otherwise from time to time. */
async function whenFree(claims: Claims, name: string, signal: AbortSignal): Promise<void> {
  const released = new Notifier();
  let releases: ReleaseSubscription | undefined;
  const read = (limit: AbortSignal) => claims.freeIn([name], limit);
  try {
    for (let count = 0; ; count += 1) {
      const left = await withinAttempt(read, LONGEST_CALL, signal);
      if (left <= 0) return;
      if (!releases && claims.onRelease) {
        releases = claims.onRelease(name, () => released.notify());
        // It may have been released since.
        continue;
      }
      const longest = releases?.isActive ? LONGEST_POLL : backoff(count, POLL);
      await released.wait({ span: Math.min(Math.max(left, 1), longest), signal, idle: true });
    }
  } finally {
    releases?.stop();
  }
}

interface Granted {
  readonly fences: readonly Fence[];
  readonly sentAt: Instant;
}

/** One request: its claim, renewals and release. */
class Acquisition {
  readonly #claims: Claims;
  readonly #request: LockRequest;
  readonly #holder: HolderOptions;
  readonly #released = new Notifier();

  /** Made before the first wait. Empty for stores that do not publish releases. */
  #releases: readonly ReleaseSubscription[] | undefined;
  #releasesSeen = 0;
  #id = "";

  /** The id, and what the holder says of itself. */
  #owner = "";

  /** The text that replaces the owner's with the next renewal. */
  #next: string | undefined;

  /** The text before the last change. One of several servers may have missed the change. */
  #previous: string | undefined;

  /** Whether a renewal may have replaced the owner's text, unconfirmed. */
  #isInDoubt = false;
  #turn: WaitForTurn | undefined;

  /** The number of turns in a row that have failed. */
  #turnsFailed = 0;

  constructor(claims: Claims, request: LockRequest, holder: HolderOptions) {
    this.#claims = claims;
    this.#request = request;
    this.#holder = holder;
  }

  /** Drops the claim and changes the owner: a drop that arrives late does not remove a later claim. */
  async #withdraw(): Promise<void> {
    await this.#drop(0);
    this.#changeOwner();
  }

  #changeOwner(): void {
    this.#id = newHolderId(this.#holder.label);
    this.#describe();
    this.#turn = this.#claims.waitForTurn?.(this.#request.names, this.#owner);
  }

  /** Renews the description of the holder, before a claim. The turn in a queue belongs to the id. */
  #describe(): void {
    const { command } = this.#holder;
    this.#owner = describeHolder(this.#id, { ...this.#request.work, command });
  }

  async acquire(): Promise<Hold | undefined> {
    try {
      return await this.#claimUntilHeld();
    } finally {
      for (const subscription of this.#releases ?? []) subscription.stop();
    }
  }

  async #claimUntilHeld(): Promise<Hold | undefined> {
    const { wait } = this.#request;
    const startedAt = instant();
    let isAnswered = false;
    for (let attempt = 0; ; attempt += 1) {
      // After a refused quorum, withdrawals may still be on the way. An entry in a queue keeps its owner.
      if (this.#turn) this.#describe();
      else this.#changeOwner();
      let freeIn = 0;
      try {
        if (attempt > 0 && !this.#turn) freeIn = await this.#freeIn();
        if (freeIn <= 0) {
          const hold = await this.#claim();
          if (hold) return hold;
        }
        isAnswered = true;
      } catch (error) {
        // A waiter that has had an answer outlasts a restart of the store. The first request fails at once.
        if (!isAnswered || !hasCode(error, "STORE_UNAVAILABLE")) throw error;
      }
      const left = wait - elapsedSince(startedAt);
      if (left <= 0) return undefined;
      await this.#waitForNext(attempt, left, freeIn);
    }
  }

  /** Waits until another attempt may succeed. `freeIn` is 0 if the lock was not found held. */
  async #waitForNext(attempt: number, left: Millis, freeIn: Millis): Promise<void> {
    const { names, signal } = this.#request;
    if (this.#turn) return this.#waitForTurn(this.#turn, left);
    this.#releases ??= names.flatMap(
      (name) => this.#claims.onRelease?.(name, () => this.#released.notify()) ?? [],
    );
    const isTold = this.#releases.length > 0 && this.#releases.every(({ isActive }) => isActive);
    // Only a lock that was found held is watched: after a lost race for it, the next read comes soon.
    const watched = freeIn > 0 ? checkIn(freeIn) : backoff(0);
    const pause = isTold ? watched : backoff(attempt);
    const since = instant();
    if (!(await this.#released.wait({ span: Math.min(pause, left), signal }))) return;
    const spread = backoff(this.#releasesSeen, AFTER_RELEASE);
    await sleep(Math.min(spread, Math.max(0, left - elapsedSince(since))), signal);
    this.#releasesSeen += 1;
  }

  /** Where the server keeps no queue for now, as in an outage, the next attempt comes after growing pauses. */
  async #waitForTurn(turn: WaitForTurn, left: Millis): Promise<void> {
    const { signal } = this.#request;
    try {
      await turn(left, signal);
      this.#turnsFailed = 0;
    } catch (error) {
      if (!hasCode(error, "STORE_UNAVAILABLE")) throw error;
      await sleep(Math.min(backoff(this.#turnsFailed), left), signal);
      this.#turnsFailed += 1;
    }
  }

  async #freeIn(): Promise<Millis> {
    const { names, ttl, signal } = this.#request;
    const read = (limit: AbortSignal) => this.#claims.freeIn(names, limit);
    return await withinAttempt(read, ttl, signal);
  }

  async #claim(): Promise<Hold | undefined> {
    const { signal } = this.#request;
    const granted = await this.#requestClaim();
    if (granted === undefined) return undefined;
    const hold = this.#hold(granted);
    if (hold.lease.remaining() > 0 && !signal.aborted) return hold;
    hold.lease.end("released");
    await this.#withdraw();
    signal.throwIfAborted();
    throw this.#unavailable("its answer took longer than the ttl");
  }

  /** Withdraws a claim whose answer was lost before another claim is sent: the lost one may have been granted. */
  #requestClaim(): Promise<Granted | undefined> {
    const { names, ttl, lockDelay, patience, signal } = this.#request;
    const pauseAfter = requestPauses(patience);
    let bound: AbortSignal | undefined;
    const attempt = async () => {
      const claim = { names, owner: this.#owner, ttl, lockDelay };
      const sentAt = instant();
      const send = (limit: AbortSignal) => {
        bound = limit;
        return this.#claims.claim(claim, limit);
      };
      const tokens = await withinAttempt(send, ttl, signal, patience);
      return tokens && { fences: this.#issue(tokens), sentAt };
    };
    const afterFailure = async (error: unknown, count: number) => {
      if (!isCertain(error)) await this.#withdraw();
      signal.throwIfAborted();
      // An attempt that has waited in this process until its end tells nothing about the server.
      const isLate = bound?.aborted && hasCode(error, "STORE_UNAVAILABLE");
      if (isCertain(error) && !isLate) return undefined;
      const pause = pauseAfter(count);
      if (pause !== undefined) return pause;
      throw this.#unavailable(`the server did not answer ${count + 1} lock requests`, error);
    };
    return retry(attempt, afterFailure, signal);
  }

  /** Throws for a token out of range; the claim is withdrawn then. */
  #issue(tokens: readonly Token[]): readonly Fence[] {
    return this.#request.names.map((name, i) => {
      const { generation, token } = tokens[i] as Token;
      return issueFence(name, generation, token, this.#id);
    });
  }

  #hold({ fences, sentAt }: Granted): Hold {
    const { names, ttl, renew, maxHold, notify } = this.#request;
    const lease = new Lease({
      names,
      ttl,
      sentAt,
      autoRenew: renew,
      maxHold,
      notify,
      toLossError: (why) => new LockLostError(names, why),
      renew: async (span, limit) => {
        const grant = { ttl: span, sentAt: instant() };
        return (await this.#renew(span, limit)) ? grant : undefined;
      },
    });
    return {
      fences,
      lease,
      release: (why) => this.#release(lease, why),
      proclaim: (value) => this.#proclaim(lease, value),
    };
  }

  async #proclaim(lease: Lease, value: string): Promise<void> {
    // The outcome of the last change must be known.
    while (this.#next) await lease.renewNow();
    const { id, host: _, pid: __, since, ...work } = describeWaiter(this.#owner);
    const revision = (work.revision ?? 0) + 1;
    this.#next = describeHolder(id, { ...work, since: since?.getTime(), value, revision });
    await lease.renewNow();
  }

  async #renew(ttl: Millis, limit: AbortSignal): Promise<boolean> {
    const next = this.#next;
    const wasInDoubt = this.#isInDoubt;
    this.#isInDoubt = wasInDoubt || next !== undefined;
    try {
      const { names } = this.#request;
      const texts =
        next === undefined && this.#previous ? [this.#previous, this.#owner] : [this.#owner, next];
      const [owner = "", newOwner] = texts;
      const isOurs = await this.#claims.renew(names, owner, ttl, limit, newOwner);
      if (isOurs && next !== undefined) this.#settle(next);
      return isOurs;
    } catch (error) {
      // Renewals without a new text may succeed where one with it is refused.
      if (next !== undefined && !wasInDoubt && isCertain(error)) this.#settle(this.#owner);
      throw error;
    }
  }

  #settle(owner: string): void {
    if (owner !== this.#owner) this.#previous = this.#owner;
    this.#owner = owner;
    this.#next = undefined;
    this.#isInDoubt = false;
  }

  async #release(lease: Lease, why: LossReason): Promise<Unlocked> {
    const left = lease.remaining();
    lease.end(why);
    return (await this.#drop(left)) && left > 0 ? "released" : "was-lost";
  }

  #unavailable(problem: string, cause?: unknown): StoreUnavailableError {
    return new StoreUnavailableError(this.#claims.traits.name, problem, cause);
  }

  /** Drops the claim, which is held for `remaining` milliseconds more. */
  #drop(remaining: Millis): Promise<boolean> {
    const { names, ttl } = this.#request;
    const drop = (owner: string, limit: AbortSignal) => this.#claims.drop(names, owner, limit);
    return releaseUntilKnown({
      drop: async (limit) => {
        const [owner, next] = [this.#owner, this.#next];
        if (next === undefined) return await drop(owner, limit);
        // A late renewal may replace the text between the first and the second.
        return (await drop(next, limit)) || (await drop(owner, limit)) || (await drop(next, limit));
      },
      store: this.#claims.traits.name,
      names,
      ttl,
      remaining,
    });
  }
}
