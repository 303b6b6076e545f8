import { noAnswer } from "./abort.ts";
import { hasCode, isCertain, quote, UnknownOutcomeError } from "./errors.ts";
import { backoff, retry } from "./retry.ts";
import {
  afterAnswers,
  elapsedSince,
  instant,
  LONGEST_CALL,
  type Millis,
  Patience,
} from "./time.ts";

export interface ReleaseRequest {
  /** Makes one owner-checked removal and gives up when `limit` aborts. False: the claim was not this owner's. */
  drop(limit: AbortSignal): Promise<boolean>;

  /** For how many milliseconds from now the claim is certainly held; 0 when unknown. */
  readonly remaining: Millis;

  readonly store: string;
  readonly names: readonly string[];
  readonly ttl: Millis;
}

/**
 * Repeats an owner-checked removal until the store has answered, for one ttl or 10 s at the most. Resolves to whether
 * the claim was still held. Otherwise rejects with an UnknownOutcomeError.
 *
 * After a lost answer, "not held" means that the lost request has removed the claim, as long as the claim cannot have
 * expired.
 */
export function releaseUntilKnown({
  drop,
  remaining,
  store,
  names,
  ttl,
}: ReleaseRequest): Promise<boolean> {
  const startedAt = instant();
  const patience = new Patience(Math.min(ttl, LONGEST_CALL));
  let isAnswerLost = false;
  const attempt = async () => {
    const { left } = patience;
    const wasHeld = await patience.during(attemptSpan(left), () => withinAttempt(drop, left));
    return wasHeld || (isAnswerLost && elapsedSince(startedAt) < remaining);
  };
  return retry(attempt, (error, count) => {
    if (!isCertain(error)) isAnswerLost = true;
    const pause = backoff(count);
    const isOver = pause >= patience.left;
    patience.take(pause);
    if (!isOver && !hasCode(error, "STORE_REFUSED", "STORE_CLOSED")) return pause;
    const what = `lock ${quote(...names)} was released; it expires by itself`;
    throw new UnknownOutcomeError(store, what, error);
  });
}

/**
 * The pauses between attempts of one request that begins now: none after the first attempt, then growing ones until
 * 10 s or half of the caller's `patience` are over. A cluster may need 10 s to elect a leader.
 */
export function requestPauses(
  patience: Millis = Number.POSITIVE_INFINITY,
): (attempt: number) => Millis | undefined {
  const startedAt = instant();
  return (attempt) => {
    if (attempt === 0) return 0;
    if (elapsedSince(startedAt) >= Math.min(patience / 2, LONGEST_CALL)) return undefined;
    return backoff(attempt + 1);
  };
}

/** The longest attempt of a lock request: a second attempt may find a better connection. */
const LONGEST_ATTEMPT: Millis = 2_000;

/** The shortest attempt, unless the ttl is shorter. */
const SHORTEST_ATTEMPT: Millis = 500;

/** How much longer an aborted request waits for an answer that is already on its way. */
export const GRACE: Millis = 100;

/**
 * The longest time for one attempt of a request that must succeed within `left`, for a caller that waits for
 * `patience`. A later answer is worth nothing, and several attempts fit into `left`.
 */
export function attemptSpan(left: Millis, patience: Millis = Number.POSITIVE_INFINITY): Millis {
  const several = Math.max(left / 3, SHORTEST_ATTEMPT);
  const two = Math.max(patience / 2, 2 * SHORTEST_ATTEMPT);
  return Math.min(left, several, two, LONGEST_ATTEMPT);
}

/**
 * Makes one attempt of a call, limited by `attemptSpan`.
 *
 * When `signal` aborts, waits for the answer for another 100 ms at the most: a known outcome needs no withdrawal.
 */
export async function withinAttempt<T>(
  call: (limit: AbortSignal) => Promise<T>,
  left: Millis,
  signal?: AbortSignal,
  patience?: Millis,
): Promise<T> {
  const limit = new AbortController();
  const giveUp = () => limit.abort(noAnswer());
  const span = attemptSpan(left, patience);
  let cancel = afterAnswers(span, giveUp);
  const onAbort = () => {
    cancel();
    cancel = afterAnswers(Math.min(span, GRACE), giveUp);
  };
  if (signal?.aborted) onAbort();
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    return await call(limit.signal);
  } finally {
    cancel();
    signal?.removeEventListener("abort", onAbort);
  }
}
