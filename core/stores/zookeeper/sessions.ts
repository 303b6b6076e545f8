import { race } from "../../lock/abort.ts";
import { StoreRefusedError } from "../../lock/errors.ts";
import { after, type Millis } from "../../lock/time.ts";
import type { Session, ZooKeeper } from "../../zookeeper/zookeeper.ts";
import type { Debt } from "./entry.ts";

/** How long a session that no lock uses is kept for the next one. */
const IDLE: Millis = 60_000;

/** A session that a lock hangs on. */
export interface LentSession {
  readonly session: Session;

  /** Whether other locks hang on it too. */
  readonly isShared: boolean;

  /**
   * No other lock may hang on it: nodes may be left behind. What is owed is tried again and again until it is
   * done or the session has ended.
   */
  condemn(debt?: Debt): void;

  /** The lock is gone, or was never had. */
  giveBack(): void;
}

/**
 * The sessions of a client's locks: one for each ttl, shared, so that a lock costs no connection; and one of its
 * own for each lock that is not to be renewed, or is held for longer than its ttl.
 */
export class Sessions {
  readonly #zookeeper: ZooKeeper;
  readonly #shared = new Map<Millis, Promise<SharedSession>>();
  readonly #open = new Set<Session>();
  readonly #ending = new Set<Promise<void>>();

  constructor(zookeeper: ZooKeeper) {
    this.#zookeeper = zookeeper;
  }

  /** A shared session of `least` at the least, that lives for a third of its ttl more. */
  async share(ttl: Millis, signal: AbortSignal, least = ttl): Promise<LentSession> {
    for (;;) {
      const known = this.#shared.get(ttl);
      const opening = known ?? this.#openShared(ttl);
      if (!known) {
        this.#shared.set(ttl, opening);
        opening.catch(() => this.#forget(ttl, opening));
      }
      const shared = await race(opening, signal);
      checkTtl(shared.session, least);
      if (shared.isGood()) return shared.lend();
      this.#forget(ttl, opening);
      shared.condemn();
    }
  }

  /** A session for one lock alone, of `least` at the least. */
  async own(ttl: Millis, signal: AbortSignal, least = ttl): Promise<LentSession> {
    const session = await this.#openOne(ttl, signal);
    const giveBack = () => this.#end(session);
    try {
      checkTtl(session, least);
    } catch (error) {
      giveBack();
      throw error;
    }
    return { session, isShared: false, condemn: () => {}, giveBack };
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#shared.values());
    for (const session of this.#open) this.#end(session);
    await Promise.all(this.#ending);
  }

  async #openShared(ttl: Millis): Promise<SharedSession> {
    const session = await this.#openOne(ttl);
    return new SharedSession(session, () => this.#end(session));
  }

  async #openOne(ttl: Millis, signal?: AbortSignal): Promise<Session> {
    const session = await this.#zookeeper.openSession(ttl, signal);
    this.#open.add(session);
    return session;
  }

  #forget(ttl: Millis, opening: Promise<SharedSession>): void {
    if (this.#shared.get(ttl) === opening) this.#shared.delete(ttl);
  }

  /** Nobody waits for it but `close`. */
  #end(session: Session): void {
    if (!this.#open.delete(session)) return;
    const ending = session.close().finally(() => this.#ending.delete(ending));
    this.#ending.add(ending);
  }
}

/** The servers have a longest timeout; a session that ends sooner than it should is of no use. */
function checkTtl({ address, ttl }: Session, least: Millis): void {
  if (ttl >= least) return;
  const problem = `its sessions last for ${ttl} ms at the most, and not for ${Math.ceil(least)} ms`;
  const advice = "take a shorter ttl, or raise maxSessionTimeout";
  throw new StoreRefusedError(address, `${problem}: ${advice}`);
}

class SharedSession {
  readonly session: Session;
  readonly #end: () => void;
  readonly #debts = new Set<Debt>();
  #users = 0;
  #condemned = false;
  #cancelEnd: () => void;
  #cancelSweep = () => {};

  constructor(session: Session, end: () => void) {
    this.session = session;
    this.#end = end;
    this.#cancelEnd = this.#endWhenIdle();
  }

  /** A session without heartbeats, or one that was frozen, is no place for a new lock. */
  isGood(): boolean {
    return !this.#condemned && this.session.remaining() > this.session.ttl / 3;
  }

  lend(): LentSession {
    this.#users += 1;
    this.#cancelEnd();
    let isLent = true;
    const giveBack = () => {
      if (isLent) this.#takeBack();
      isLent = false;
    };
    const condemn = (debt?: Debt) => this.condemn(debt);
    return { session: this.session, isShared: true, condemn, giveBack };
  }

  condemn(debt?: Debt): void {
    this.#condemned = true;
    if (debt) this.#debts.add(debt);
    if (this.#users === 0) this.#end();
    else void this.#sweep();
  }

  #takeBack(): void {
    this.#users -= 1;
    if (this.#users > 0) return;
    if (this.#condemned) this.#end();
    else this.#cancelEnd = this.#endWhenIdle();
  }

  #endWhenIdle(): () => void {
    return after(IDLE, () => this.condemn(), { idle: true });
  }

  /** Other locks keep the session alive, and so what was left behind in it. */
  async #sweep(): Promise<void> {
    this.#cancelSweep();
    for (const debt of [...this.#debts]) {
      await debt().then(
        () => this.#debts.delete(debt),
        () => {},
      );
    }
    if (this.#debts.size === 0 || this.session.signal.aborted) return;
    const again = () => void this.#sweep();
    this.#cancelSweep = after(this.session.ttl / 3, again, { idle: true });
  }
}
