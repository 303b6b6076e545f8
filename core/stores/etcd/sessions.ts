import type { Etcd, Seconds } from "../../etcd/etcd.ts";
import { toSeconds } from "../../etcd/leases.ts";
import { race } from "../../lock/abort.ts";
import { after, type Millis } from "../../lock/time.ts";
import { HeldLease } from "./lease.ts";
import { removalOf, type Suspect } from "./place.ts";
import { Session } from "./session.ts";

/** How long a session that no lock uses is kept for the next one. */
const IDLE: Millis = 60_000;

/** As many removals as a transaction takes. */
const MOST_SUSPECTS = 100;

/** A lease that a lock hangs on. */
export interface LentLease {
  readonly held: HeldLease;

  /** Aborts when it is lost while it is kept alive for the lock. */
  readonly signal: AbortSignal;

  /** The lock is had: from now on it is for whoever has it to renew the lease. */
  settle(): void;

  /**
   * Nobody else may use the lease: these keys may stand under it, or be written late. They are removed, again
   * and again, from when the lock is gone until the lease ends.
   */
  condemn(...suspects: readonly Suspect[]): void;

  /** The lock is gone, or was never had. */
  giveBack(): void;
}

/**
 * The leases of a client's locks: one that is kept alive for each ttl, shared, so that a lock costs one call
 * and not three; and one of its own for each lock that is not to be renewed.
 */
export class Sessions {
  readonly #etcd: Etcd;
  readonly #shared = new Map<Seconds, Promise<SharedSession>>();
  readonly #open = new Set<Session>();
  readonly #ending = new Set<Promise<void>>();

  constructor(etcd: Etcd) {
    this.#etcd = etcd;
  }

  /** A shared lease that lives for at least half of this ttl more. */
  async share(ttl: Millis, signal: AbortSignal): Promise<LentLease> {
    const seconds = toSeconds(ttl);
    for (;;) {
      const known = this.#shared.get(seconds);
      const opening = known ?? this.#openShared(seconds);
      if (!known) {
        this.#shared.set(seconds, opening);
        opening.catch(() => this.#forget(seconds, opening));
      }
      const shared = await race(opening, signal);
      if (shared.isGood()) return shared.lend();
      this.#forget(seconds, opening);
      shared.condemn();
    }
  }

  /** A lease for one lock alone. It is kept alive until the lock is had. */
  async own(ttl: Millis, signal: AbortSignal): Promise<LentLease> {
    const held = await HeldLease.grant(this.#etcd, ttl, signal);
    const session = this.#keep(held);
    return {
      held,
      signal: session.signal,
      settle: () => session.orphan(),
      condemn: () => {},
      giveBack: () => this.#end(session),
    };
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#shared.values());
    for (const session of this.#open) this.#end(session);
    await Promise.all(this.#ending);
  }

  async #openShared(seconds: Seconds): Promise<SharedSession> {
    const held = await HeldLease.grant(this.#etcd, seconds * 1_000);
    const session = this.#keep(held);
    return new SharedSession(this.#etcd, held, session, () => this.#end(session));
  }

  #forget(seconds: Seconds, opening: Promise<SharedSession>): void {
    if (this.#shared.get(seconds) === opening) this.#shared.delete(seconds);
  }

  #keep(held: HeldLease): Session {
    const session = new Session(held);
    this.#open.add(session);
    return session;
  }

  /** Nobody waits for it but `close`. */
  #end(session: Session): void {
    if (!this.#open.delete(session)) return;
    const ending = session.close().finally(() => this.#ending.delete(ending));
    this.#ending.add(ending);
  }
}

class SharedSession {
  readonly #etcd: Etcd;
  readonly #held: HeldLease;
  readonly #session: Session;
  readonly #end: () => void;
  readonly #suspects: Suspect[] = [];
  #users = 0;
  #condemned = false;
  #cancelEnd: () => void;
  #cancelSweep = () => {};

  constructor(etcd: Etcd, held: HeldLease, session: Session, end: () => void) {
    this.#etcd = etcd;
    this.#held = held;
    this.#session = session;
    this.#end = end;
    this.#cancelEnd = this.#endWhenIdle();
  }

  /** A session whose renewals fail, or that was frozen, is no place for a new lock. */
  isGood(): boolean {
    return !this.#condemned && this.#session.remaining() > this.#held.ttl / 2;
  }

  lend(): LentLease {
    this.#users += 1;
    this.#cancelEnd();
    const mine: Suspect[] = [];
    let isLent = true;
    const giveBack = () => {
      if (isLent) this.#takeBack(mine);
      isLent = false;
    };
    const settle = () => {};
    const condemn = (...suspects: readonly Suspect[]) => {
      mine.push(...suspects);
      this.condemn();
    };
    return { held: this.#held, signal: this.#session.signal, settle, condemn, giveBack };
  }

  condemn(): void {
    this.#condemned = true;
    if (this.#users === 0) this.#end();
  }

  #takeBack(suspects: readonly Suspect[]): void {
    this.#users -= 1;
    this.#suspects.push(...suspects);
    if (this.#users > 0) void this.#sweep();
    else if (this.#condemned) this.#end();
    else this.#cancelEnd = this.#endWhenIdle();
  }

  #endWhenIdle(): () => void {
    return after(IDLE, () => this.condemn(), { idle: true });
  }

  /** Other locks keep the lease alive, and a late request may come at any time. */
  async #sweep(): Promise<void> {
    this.#cancelSweep();
    if (this.#suspects.length === 0 || this.#session.signal.aborted) return;
    const removals = this.#suspects.slice(-MOST_SUSPECTS);
    const sweep = { when: [], do: removals.map((suspect) => removalOf(suspect, this.#held.id)) };
    await this.#etcd.txn(sweep).catch(() => {});
    const again = () => void this.#sweep();
    this.#cancelSweep = after(this.#held.ttl / 3, again, { idle: true });
  }
}
