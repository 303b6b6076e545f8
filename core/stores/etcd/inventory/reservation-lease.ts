import { elapsedSince, type Instant, instant } from "../../../lock/time.ts";
import { type Etcd, type LeaseId, newLease, type Seconds } from "../client/etcd.ts";

/** The part of its span that a lease may have used up before the reservation is written. */
const MOST_USED = 0.05;

/** The lease that bounds a new reservation. */
export class ReservationLease {
  readonly #etcd: Etcd;
  #granted: { readonly id: LeaseId; readonly sentAt: Instant } | undefined;

  constructor(etcd: Etcd) {
    this.#etcd = etcd;
  }

  /** Grants the lease, or another one if conflicts have used up too much of it. */
  async grant(span: Seconds, limit: AbortSignal): Promise<LeaseId> {
    const known = this.#granted;
    if (known && elapsedSince(known.sentAt) <= MOST_USED * span * 1_000) return known.id;
    this.revoke();
    const [id, sentAt] = [newLease(), instant()];
    await this.#etcd.grant(id, span, limit);
    this.#granted = { id, sentAt };
    return id;
  }

  /** Revokes the lease, which no reservation uses. */
  revoke(): void {
    if (this.#granted) revokeUnused(this.#etcd, this.#granted.id);
    this.#granted = undefined;
  }
}

/** Revokes a lease without keys: its reservation was closed, or was not made. */
export function revokeUnused(etcd: Etcd, lease: LeaseId): void {
  // If the request fails, the lease ends by itself.
  void etcd.revoke(lease).catch(() => {});
}
