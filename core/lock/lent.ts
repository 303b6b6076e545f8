import { deadline, follow, noAnswer } from "./abort.ts";
import type { Hold, LockRequest } from "./backend.ts";
import { SessionExpiredError } from "./errors.ts";
import type { Millis } from "./time.ts";

/** What a lock hangs on, and other locks maybe too: a lease, a session. */
export interface Lent {
  /** No other lock may hang on it from now on. */
  condemn(): void;

  /** The lock is gone, or was never had. */
  giveBack(): void;
}

export interface Lender<L extends Lent> {
  /** One for all locks with this ttl, which is kept alive. */
  share(ttl: Millis, signal: AbortSignal): Promise<L>;

  /** One for a lock alone. */
  own(ttl: Millis, signal: AbortSignal): Promise<L>;
}

/** What was lent had ended, before anybody could notice: nobody stands in line. */
export class NotEnteredError extends SessionExpiredError {}

/** A hold on something lent, which is given back where none comes of it; on another one if that had ended. */
export async function holdOnLent<L extends Lent>(
  lender: Lender<L>,
  { ttl, renew, signal }: LockRequest,
  acquire: (lent: L) => Promise<Hold | undefined>,
): Promise<Hold | undefined> {
  for (let attempt = 0; ; attempt += 1) {
    const lent = renew ? await lender.share(ttl, signal) : await lender.own(ttl, signal);
    let hold: Hold | undefined;
    try {
      hold = await acquire(lent);
      return hold;
    } catch (error) {
      if (!(error instanceof NotEnteredError) || attempt > 0) throw error;
      lent.condemn();
    } finally {
      if (hold === undefined) lent.giveBack();
    }
  }
}

/** Resolves to whether the turn has come within the request's `wait`; if not, or if it fails, `leave` is called. */
export async function turnInTime(
  { wait, signal }: LockRequest,
  turn: (patience: AbortSignal) => Promise<void>,
  leave: () => Promise<unknown>,
): Promise<boolean> {
  const limit = deadline(wait, noAnswer);
  const patience = follow(signal, limit.signal);
  try {
    await turn(patience.signal);
    return true;
  } catch (error) {
    await leave();
    if (error === limit.signal.reason) return false;
    throw error;
  } finally {
    patience[Symbol.dispose]();
    limit[Symbol.dispose]();
  }
}
