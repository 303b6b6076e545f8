import { deadline, noAnswer, race } from "../../../lock/abort.ts";
import { requestPauses, withinAttempt } from "../../../lock/attempts.ts";
import { isCertain, SessionExpiredError, StoreUnavailableError } from "../../../lock/errors.ts";
import type { LeaseGrant } from "../../../lock/lease.ts";
import { backoff, retry } from "../../../lock/retry.ts";
import { elapsedSince, instant, type Millis } from "../../../lock/time.ts";
import { type Etcd, LeaseExistsError, type LeaseId, newLease, toSeconds } from "../client/etcd.ts";
import { refusalIn } from "../client/failure.ts";

/** A lease in etcd, and its last grant. */
export class EtcdLease {
  readonly id: LeaseId;
  readonly #etcd: Etcd;
  #grant: LeaseGrant;
  #renewing: Promise<LeaseGrant | undefined> | undefined;

  private constructor(etcd: Etcd, id: LeaseId, grant: LeaseGrant) {
    this.#etcd = etcd;
    this.id = id;
    this.#grant = grant;
  }

  /**
   * Creates a lease for at least `ttl`: etcd counts in whole seconds and has a minimum of its own.
   *
   * The client chooses the id, so that a grant whose answer was lost can be requested again, or be withdrawn.
   */
  static async grant(etcd: Etcd, ttl: Millis, signal?: AbortSignal): Promise<EtcdLease> {
    const id = newLease();
    const pauseOf = requestPauses();
    const attempt = async (count: number) => {
      try {
        return new EtcdLease(etcd, id, await grantOnce(etcd, id, ttl, signal));
      } catch (error) {
        if (count === 0 || !(error instanceof LeaseExistsError)) throw error;
        return EtcdLease.adopt(etcd, id, signal);
      }
    };
    return retry(attempt, (error, count) => {
      const isKnown = isCertain(error);
      if (isKnown && count === 0) return undefined;
      const refusal = refusalIn(error);
      const pause = isKnown || refusal || signal?.aborted ? undefined : pauseOf(count);
      if (pause !== undefined) return pause;
      // In the background: at worst, a lease without keys lives on for one ttl.
      void revoke(etcd, id);
      signal?.throwIfAborted();
      if (isKnown) throw error;
      const problem = `the server did not answer ${count + 1} requests for a lease`;
      throw refusal ?? new StoreUnavailableError(etcd.address, problem, error);
    });
  }

  /** Takes a lease over that exists already. Rejects with a SessionExpiredError when the lease is gone. */
  static async adopt(etcd: Etcd, id: LeaseId, signal?: AbortSignal): Promise<EtcdLease> {
    const grant = await keepAlive(etcd, id, signal);
    if (grant === undefined) throw new SessionExpiredError(hex(id));
    return new EtcdLease(etcd, id, grant);
  }

  get ttl(): Millis {
    return this.#grant.ttl;
  }

  /** The last grant that was acknowledged. */
  get granted(): LeaseGrant {
    return this.#grant;
  }

  /**
   * Starts the ttl anew, with one request for all callers at about the same time. Resolves to undefined when the lease is
   * gone.
   */
  renew(signal?: AbortSignal): Promise<LeaseGrant | undefined> {
    if (elapsedSince(this.#grant.sentAt) < this.ttl / 10) return Promise.resolve(this.#grant);
    this.#renewing ??= this.#renewOnce().finally(() => {
      this.#renewing = undefined;
    });
    return signal ? race(this.#renewing, signal) : this.#renewing;
  }

  /** Ends the lease and deletes its keys, as far as etcd can be reached; otherwise the lease expires. Never rejects. */
  revoke(): Promise<void> {
    return revoke(this.#etcd, this.id);
  }

  async #renewOnce(): Promise<LeaseGrant | undefined> {
    // Several attempts fit between a third of the ttl and its end.
    using limit = deadline(this.ttl / 5, noAnswer);
    const grant = await keepAlive(this.#etcd, this.id, limit.signal);
    if (grant) this.#grant = grant;
    return grant;
  }
}

/** The id of a lease as Go writes it into the names of keys. */
export function hex(lease: LeaseId): string {
  return lease.toString(16);
}

async function grantOnce(
  etcd: Etcd,
  id: LeaseId,
  ttl: Millis,
  signal?: AbortSignal,
): Promise<LeaseGrant> {
  const sentAt = instant();
  const grant = (limit: AbortSignal) => etcd.grant(id, toSeconds(ttl), limit);
  return { ttl: (await withinAttempt(grant, ttl, signal)) * 1_000, sentAt };
}

async function keepAlive(
  etcd: Etcd,
  id: LeaseId,
  signal?: AbortSignal,
): Promise<LeaseGrant | undefined> {
  const sentAt = instant();
  const ttl = await etcd.keepAlive(id, signal);
  return ttl === undefined ? undefined : { ttl: ttl * 1_000, sentAt };
}

/** The longest time that a lease is tried to be revoked: the lease expires in any case. */
const REVOKING: Millis = 2_000;

async function revoke(etcd: Etcd, id: LeaseId): Promise<void> {
  using limit = deadline(REVOKING, noAnswer);
  const pauseAfter = (_: unknown, count: number) => (count < 2 ? backoff(count) : undefined);
  await retry(() => etcd.revoke(id, limit.signal), pauseAfter, limit.signal).catch(() => {});
}
