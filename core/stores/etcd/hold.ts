import type { Etcd } from "../../etcd/etcd.ts";
import { ownerByKey } from "../../etcd/names.ts";
import { giveBack } from "../../lock/answers.ts";
import type { Hold, LockRequest } from "../../lock/backend.ts";
import { LockLostError, type LossReason } from "../../lock/errors.ts";
import { type Fence, issueFence } from "../../lock/fence.ts";
import { GivingBack } from "../../lock/giving-back.ts";
import { type Grant, Life } from "../../lock/life.ts";
import type { Unlocked } from "../../lock/lock.ts";
import type { Millis } from "../../lock/time.ts";
import type { Place } from "./place.ts";
import type { LentLease, Sessions } from "./sessions.ts";

/** A place at the head of its queues, for as long as its lease is known to live. */
export class EtcdHold implements Hold {
  readonly fences: readonly Fence[];
  readonly life: Life;
  readonly #etcd: Etcd;
  readonly #sessions: Sessions;
  readonly #request: LockRequest;
  readonly #place: Place;

  /** The lease of the keys is the first one; of the others, it is not known whether they got the keys. */
  readonly #leases: LentLease[];
  readonly #stopGuard: () => void;
  readonly #givingBack: GivingBack;

  constructor(
    etcd: Etcd,
    sessions: Sessions,
    request: LockRequest,
    { place, lent, generation }: { place: Place; lent: LentLease; generation: number },
  ) {
    const { names, renew, maxHold, notify } = request;
    this.#etcd = etcd;
    this.#sessions = sessions;
    this.#request = request;
    this.#place = place;
    this.#leases = [lent];
    this.fences = names.map((name, i) =>
      issueFence(name, generation, place.revision, ownerByKey(place.keys[i] as string)),
    );
    this.life = new Life({
      ...lent.held.granted,
      names,
      auto: renew,
      maxHold,
      notify,
      renew: (ttl, signal) => this.#renew(ttl, signal),
      lost: (why) => new LockLostError(names, why),
    });
    this.#stopGuard = place.guard(() => this.life.end("taken"));
    this.#givingBack = new GivingBack(this.life, (ours) => this.#drop(ours));
  }

  release(why: LossReason): Promise<Unlocked> {
    return this.#givingBack.release(why);
  }

  /** etcd cannot lengthen a lease's ttl: what is to be held for longer than that moves to another lease. */
  async #renew(ttl: Millis, signal: AbortSignal): Promise<Grant | undefined> {
    const [current] = this.#leases as [LentLease];
    if (ttl <= current.held.ttl) return current.held.renew(signal);
    const own = await this.#sessions.own(ttl, signal);
    if (this.#givingBack.hasBegun) {
      own.giveBack();
      return undefined;
    }
    // Kept alive until it is known whether the keys have moved.
    this.#leases.push(own);
    if (!(await this.#place.move(own.held.id, signal))) return undefined;
    this.#leases.unshift(...this.#leases.splice(this.#leases.indexOf(own), 1));
    own.settle();
    return own.held.granted;
  }

  async #drop(ours: Millis): Promise<boolean> {
    this.#stopGuard();
    try {
      return await leave(this.#etcd, this.#place, this.#request, ours);
    } catch (error) {
      for (const lease of this.#leases) lease.condemn(...this.#place.suspects);
      throw error;
    } finally {
      for (const lease of this.#leases) lease.giveBack();
    }
  }
}

/** Leaves a place that is ours for `ours` milliseconds more. Rejects with an UnknownOutcomeError. */
export function leave(
  etcd: Etcd,
  place: Place,
  { names, ttl }: LockRequest,
  ours: Millis,
): Promise<boolean> {
  const drop = (limit: AbortSignal) => place.leave(limit);
  return giveBack({ drop, store: etcd.address, names, ttl, ours });
}
