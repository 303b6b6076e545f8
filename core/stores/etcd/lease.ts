import { type Etcd, type Lease, LeaseExistsError } from "../../etcd/etcd.ts";
import { newLease, toSeconds } from "../../etcd/leases.ts";
import { deadline, noAnswer, race, sleep } from "../../lock/abort.ts";
import { pause } from "../../lock/answers.ts";
import { isCertain, SessionExpiredError, StoreUnavailableError } from "../../lock/errors.ts";
import type { Grant } from "../../lock/life.ts";
import { elapsedSince, instant, type Millis } from "../../lock/time.ts";

/** A lease of ours, and until when it certainly lives. */
export class HeldLease {
  readonly id: Lease;
  readonly #etcd: Etcd;
  #grant: Grant;
  #renewing: Promise<Grant | undefined> | undefined;

  private constructor(etcd: Etcd, id: Lease, grant: Grant) {
    this.#etcd = etcd;
    this.id = id;
    this.#grant = grant;
  }

  /**
   * A new lease for at least `ttl`: etcd counts in whole seconds and has a minimum of its own.
   *
   * Its id is chosen here, so that a grant whose answer was lost can be asked for again, or be withdrawn.
   */
  static async grant(etcd: Etcd, ttl: Millis, signal?: AbortSignal): Promise<HeldLease> {
    const id = newLease();
    try {
      return new HeldLease(etcd, id, await ask(etcd, id, ttl, signal));
    } catch (error) {
      if (isCertain(error)) throw error;
      try {
        signal?.throwIfAborted();
        return new HeldLease(etcd, id, await ask(etcd, id, ttl, signal));
      } catch (again) {
        if (again instanceof LeaseExistsError) return HeldLease.adopt(etcd, id, signal);
        // Nobody waits for it: at worst a lease without keys lives on for one ttl.
        void revoke(etcd, id);
        throw isCertain(again) || signal?.aborted ? again : noLease(etcd, again);
      }
    }
  }

  /** A lease that somebody else was granted. Rejects with a SessionExpiredError when it is gone. */
  static async adopt(etcd: Etcd, id: Lease, signal?: AbortSignal): Promise<HeldLease> {
    const grant = await keepAlive(etcd, id, signal);
    if (grant === undefined) throw new SessionExpiredError(hex(id));
    return new HeldLease(etcd, id, grant);
  }

  get ttl(): Millis {
    return this.#grant.ttl;
  }

  /** The last grant that was acknowledged. */
  get granted(): Grant {
    return this.#grant;
  }

  /** For how much longer it certainly lives. */
  remaining(): Millis {
    return this.#grant.ttl - elapsedSince(this.#grant.sentAt);
  }

  /**
   * Starts the ttl anew, for all who ask at about the same time. Resolves to undefined when the lease is gone.
   */
  renew(signal?: AbortSignal): Promise<Grant | undefined> {
    if (elapsedSince(this.#grant.sentAt) < this.ttl / 10) return Promise.resolve(this.#grant);
    this.#renewing ??= this.#renewOnce().finally(() => {
      this.#renewing = undefined;
    });
    return signal ? race(this.#renewing, signal) : this.#renewing;
  }

  /** Ends it and deletes its keys, as far as etcd can be reached: otherwise it ends by itself. Never rejects. */
  revoke(): Promise<void> {
    return revoke(this.#etcd, this.id);
  }

  async #renewOnce(): Promise<Grant | undefined> {
    // Several attempts fit between a third of the ttl and its end.
    const limit = deadline(this.ttl / 5, noAnswer);
    try {
      const grant = await keepAlive(this.#etcd, this.id, limit.signal);
      if (grant) this.#grant = grant;
      return grant;
    } finally {
      limit[Symbol.dispose]();
    }
  }
}

/** As Go writes it into the names of keys. */
export function hex(lease: Lease): string {
  return lease.toString(16);
}

async function ask(etcd: Etcd, id: Lease, ttl: Millis, signal?: AbortSignal): Promise<Grant> {
  const sentAt = instant();
  return { ttl: (await etcd.grant(id, toSeconds(ttl), signal)) * 1_000, sentAt };
}

async function keepAlive(etcd: Etcd, id: Lease, signal?: AbortSignal): Promise<Grant | undefined> {
  const sentAt = instant();
  const ttl = await etcd.keepAlive(id, signal);
  return ttl === undefined ? undefined : { ttl: ttl * 1_000, sentAt };
}

/** How long one tries to revoke a lease, which ends by itself in any case. */
const REVOKING: Millis = 5_000;

async function revoke(etcd: Etcd, id: Lease): Promise<void> {
  const limit = deadline(REVOKING, noAnswer);
  try {
    for (let attempt = 0; attempt < 3; attempt += 1) {
      const isDone = await etcd.revoke(id, limit.signal).then(
        () => true,
        () => false,
      );
      if (isDone || limit.signal.aborted) return;
      await sleep(pause(attempt));
    }
  } finally {
    limit[Symbol.dispose]();
  }
}

function noLease(etcd: Etcd, cause: unknown): StoreUnavailableError {
  return new StoreUnavailableError(etcd.address, "the answers to two grants did not arrive", cause);
}
