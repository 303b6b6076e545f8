import { giveBack } from "../../lock/answers.ts";
import type { Hold, LockRequest } from "../../lock/backend.ts";
import { LockLostError, type LossReason } from "../../lock/errors.ts";
import { type Fence, issueFence } from "../../lock/fence.ts";
import { GivingBack } from "../../lock/giving-back.ts";
import { type Grant, Life, margin } from "../../lock/life.ts";
import type { Unlocked } from "../../lock/lock.ts";
import { elapsedSince, type Millis } from "../../lock/time.ts";
import type { Place } from "./place.ts";
import { encodeRecord } from "./record.ts";
import type { LentSession, Sessions } from "./sessions.ts";

export interface Held {
  readonly place: Place;
  readonly lent: LentSession;
  readonly generation: number;

  /** Who holds, for humans. */
  readonly label: string;
}

/** A place at the head of its queues, for as long as its session is known to live. */
export class ZooKeeperHold implements Hold {
  readonly fences: readonly Fence[];
  readonly life: Life;
  readonly #sessions: Sessions;
  readonly #request: LockRequest;
  readonly #place: Place;
  readonly #label: string;

  /** The session of the nodes is the first one; of the others, it is not known whether they got the nodes. */
  readonly #lent: LentSession[];
  #stopWatching = () => {};
  readonly #givingBack: GivingBack;

  constructor(sessions: Sessions, request: LockRequest, { place, lent, generation, label }: Held) {
    const { names, renew, maxHold, notify } = request;
    this.#sessions = sessions;
    this.#request = request;
    this.#place = place;
    this.#label = label;
    this.#lent = [lent];
    this.fences = names.map((name, i) =>
      issueFence(name, generation, place.czxid, `zookeeper:${place.paths[i]}`),
    );
    this.life = new Life({
      ...lent.session.granted,
      names,
      auto: renew,
      maxHold,
      notify,
      renew: (ttl, signal, span) => this.#renew(ttl, signal, span),
      lost: (why) => new LockLostError(names, why),
    });
    this.#watch();
    this.#givingBack = new GivingBack(this.life, (ours) => this.#drop(ours));
  }

  release(why: LossReason): Promise<Unlocked> {
    return this.#givingBack.release(why);
  }

  /**
   * A session's timeout cannot be lengthened: one that comes back with a longer one has its old one again when
   * the servers choose a new leader. So what is to be held for longer moves to another session.
   */
  async #renew(ttl: Millis, signal: AbortSignal, span: Millis): Promise<Grant | undefined> {
    const [{ session, isShared }] = this.#lent as [LentSession];
    if (ttl <= session.ttl) {
      const grant = await session.renew(signal);
      if (!grant || leaves(grant, span)) return grant;
      if (!isShared) return session.reattach(signal);
    }
    return this.#move(Math.max(ttl, session.ttl), signal, span);
  }

  async #move(ttl: Millis, signal: AbortSignal, span: Millis): Promise<Grant | undefined> {
    const own = await this.#sessions.own(ttl, signal, span + 2 * margin(span));
    if (this.#givingBack.hasBegun) {
      own.giveBack();
      return undefined;
    }
    // Kept until it is known whether the nodes have moved.
    this.#lent.push(own);
    const token = this.#place.czxid;
    const data = encodeRecord({ holder: this.#label, ttl: own.session.ttl, token });
    if (!(await this.#place.move(own.session, data, signal))) return undefined;
    this.#lent.unshift(...this.#lent.splice(this.#lent.indexOf(own), 1));
    if (!this.#request.renew) own.session.rest();
    if (!this.#givingBack.hasBegun) this.#watch();
    return own.session.granted;
  }

  /** Whether our nodes, and the session that they hang on, are still there. */
  #watch(): void {
    this.#stopWatching();
    const [{ session }] = this.#lent as [LentSession];
    const onEnd = () => this.life.end(this.life.remaining() > 0 ? "taken" : "expired");
    const stopGuard = this.#place.guard(() => this.life.end("taken"));
    session.signal.addEventListener("abort", onEnd, { once: true });
    this.#stopWatching = () => {
      stopGuard();
      session.signal.removeEventListener("abort", onEnd);
    };
    if (session.signal.aborted) onEnd();
  }

  async #drop(ours: Millis): Promise<boolean> {
    this.#stopWatching();
    try {
      return await leave(this.#place, this.#request, this.#lent, ours);
    } finally {
      for (const lent of this.#lent) lent.giveBack();
    }
  }
}

function leaves({ ttl, sentAt }: Grant, span: Millis): boolean {
  return ttl - margin(ttl) - elapsedSince(sentAt) >= span;
}

/** Leaves a place that is ours for `ours` milliseconds more. Rejects with an UnknownOutcomeError. */
export async function leave(
  place: Place,
  { names, ttl }: LockRequest,
  sessions: readonly LentSession[],
  ours: Millis,
): Promise<boolean> {
  const [{ session }] = sessions as [LentSession];
  const drop = (limit: AbortSignal) => place.leave(limit);
  try {
    return await giveBack({ drop, store: session.address, names, ttl, ours });
  } catch (error) {
    for (const lent of sessions) lent.condemn(() => place.leave());
    throw error;
  }
}
