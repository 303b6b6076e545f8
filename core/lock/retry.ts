import { deadline, noAnswer, sleep } from "./abort.ts";
import { hasCode, isCertain, StoreUnavailableError, UnknownOutcomeError } from "./errors.ts";
import { LONGEST_CALL, type Millis, Patience } from "./time.ts";

export interface Backoff {
  /** The first pause. Default 10 ms. */
  readonly base?: Millis;

  /** By how much each pause is longer than the one before. Default 1.5. */
  readonly factor?: number;

  /** The longest pause. Default 200 ms. */
  readonly max?: Millis;

  /** `equal`: at least half of the pause, the rest at random. `full`: all of it at random. Default `equal`. */
  readonly jitter?: "equal" | "full";
}

/** The pause after failed attempt number `attempt`, counted from 0, with jitter. */
export function backoff(
  attempt: number,
  { base = 10, factor = 1.5, max = 200, jitter = "equal" }: Backoff = {},
): Millis {
  const share = jitter === "equal" ? 0.5 + Math.random() / 2 : Math.random();
  return Math.min(base * factor ** attempt, max) * share;
}

/** The pause before the next attempt; undefined when the failure is final. An error that it throws is final, too. */
export type PauseAfter = (
  error: unknown,
  attempt: number,
) => Millis | undefined | Promise<Millis | undefined>;

/**
 * Repeats `attempt` until it succeeds or its failure is final, and then rejects with that failure. Attempts are counted
 * from 0. Rejects with the signal's reason when the signal aborts a pause.
 */
export async function retry<T>(
  attempt: (attempt: number) => Promise<T>,
  pauseAfter: PauseAfter,
  signal?: AbortSignal,
): Promise<T> {
  for (let count = 0; ; count += 1) {
    try {
      return await attempt(count);
    } catch (error) {
      const pause = await pauseAfter(error, count);
      if (pause === undefined) throw error;
      if (pause > 0) await sleep(pause, signal);
    }
  }
}

/**
 * The longest first attempt: a connection may be dead without notice. The second one has a connection that is new, or
 * that has answered since. Each further attempt has twice as long: a change behind a locked row takes longer than 2 s,
 * and would never be done if each attempt were abandoned so soon.
 */
const FIRST_ATTEMPT: Millis = 2_000;

const REPEAT: Backoff = { base: 5, factor: 2, max: 200, jitter: "full" };

/** Repeats a read until the store is available. Rejects with the signal's reason, and with any other error of the read. */
export function readWhenAvailable<T>(read: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const pauseAfter = (error: unknown, count: number) => {
    signal.throwIfAborted();
    return hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME") ? backoff(count) : undefined;
  };
  return retry(read, pauseAfter, signal);
}

/** The failure of an attempt that resolved to undefined. */
const NO_RESULT = new Error("the attempt has no result yet");

interface Bounds {
  /** For all attempts. Default 10 seconds. */
  readonly patience?: Millis;

  /** For the first attempt. Default 2 seconds. */
  readonly attempt?: Millis;
}

/**
 * Repeats an idempotent call of a store until its outcome is known: after a lost answer, after an attempt that took too
 * long, and when the call resolves to undefined.
 *
 * Rejects with an UnknownOutcomeError about `what` when an answer was lost and no other one came in time.
 */
export async function retryUntilKnown<T>(
  address: string,
  what: string,
  signal: AbortSignal | undefined,
  call: (limit: AbortSignal) => Promise<T | undefined>,
  { patience = LONGEST_CALL, attempt = FIRST_ATTEMPT }: Bounds = {},
): Promise<T> {
  signal?.throwIfAborted();
  const time = new Patience(patience);
  let bound = signal;
  let lost: unknown;
  const once = (count: number): Promise<T> => {
    const longest = Math.min(attempt * 2 ** count, time.left);
    return time.during(longest, async () => {
      using span = deadline(longest, noAnswer, signal);
      bound = span.signal;
      const answer = await call(bound);
      if (answer === undefined) throw NO_RESULT;
      return answer;
    });
  };
  const pauseAfter = (error: unknown, count: number) => {
    const isLate = bound?.aborted && !signal?.aborted;
    // The attempt has waited in this process until its end, or has read in vain.
    const hasWaited = isLate && error === bound?.reason;
    const pause = hasWaited ? 0 : backoff(count, REPEAT);
    const isOver = pause >= time.left || signal?.aborted;
    time.take(pause);
    if (hasCode(error, "UNKNOWN_OUTCOME")) lost = error;
    if (error === NO_RESULT || error === lost || hasWaited) {
      if (!isOver) return pause;
      throw signal?.aborted ? signal.reason : new StoreUnavailableError(address, "no answer");
    }
    const mayRepeat = !isOver && (isLate || lost !== undefined);
    return mayRepeat && hasCode(error, "STORE_UNAVAILABLE") ? pause : undefined;
  };
  try {
    return await retry(once, pauseAfter, signal);
  } catch (error) {
    const isNotDone = lost === undefined && hasCode(error, "STORE_UNAVAILABLE");
    if (isNotDone && signal?.aborted) throw signal.reason;
    // That a repetition was certainly not executed tells nothing about the attempt before it.
    const tellsNothing = error === signal?.reason || isCertain(error);
    if (lost === undefined || !tellsNothing) throw error;
    throw new UnknownOutcomeError(address, what, lost);
  }
}
