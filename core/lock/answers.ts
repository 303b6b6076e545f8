import { noAnswer, sleep } from "./abort.ts";
import { hasCode, isCertain, quote, UnknownOutcomeError } from "./errors.ts";
import { after, elapsedSince, instant, LONGEST_CALL, type Millis } from "./time.ts";

export interface GivingBack {
  /** One owner-checked removal, given up when `limit` aborts. False: it was not ours. */
  drop(limit: AbortSignal): Promise<boolean>;

  /** For how long, from now, what is dropped is certainly ours; 0 when that is not known. */
  readonly ours: Millis;

  readonly store: string;
  readonly names: readonly string[];
  readonly ttl: Millis;
}

/**
 * Drops again and again until the store has answered, for one ttl or 10 s at the most. Resolves to whether it
 * was ours.
 *
 * When an answer was lost, a later "not yours" means that the lost one was a yes, provided that it was ours
 * all the time.
 */
export async function giveBack({ drop, ours, store, names, ttl }: GivingBack): Promise<boolean> {
  const startedAt = instant();
  let lostAnswer = false;
  for (let look = 0; ; look += 1) {
    try {
      return (await answerTo(drop, ttl)) || (lostAnswer && elapsedSince(startedAt) < ours);
    } catch (error) {
      if (!isCertain(error)) lostAnswer = true;
      const again = pause(look);
      const spent = elapsedSince(startedAt) + again >= Math.min(ttl, LONGEST_CALL);
      if (spent || hasCode(error, "STORE_REFUSED", "STORE_CLOSED")) {
        const what = `lock ${quote(...names)} was given back; it expires by itself`;
        throw new UnknownOutcomeError(store, what, error);
      }
      await sleep(again);
    }
  }
}

/** The pause before the n-th look: from 10 ms, half as much again each time, up to 200 ms, jittered. */
export function pause(look: number): Millis {
  return Math.min(10 * 1.5 ** look, 200) * (0.5 + Math.random() / 2);
}

/** How much longer an aborted caller waits for an answer that is already on its way. */
const GRACE: Millis = 1_000;

/**
 * Gives a call of the store at most one ttl: an answer later than that is worth nothing.
 *
 * When `hurry` aborts, the answer is waited for only a little longer: knowing it beats having to withdraw.
 */
export async function answerTo<T>(
  call: (limit: AbortSignal) => Promise<T>,
  ttl: Millis,
  hurry?: AbortSignal,
): Promise<T> {
  const limit = new AbortController();
  const giveUp = () => limit.abort(noAnswer());
  let cancel = after(Math.min(ttl, LONGEST_CALL), giveUp);
  const onHurry = () => {
    cancel();
    cancel = after(Math.min(ttl, GRACE), giveUp);
  };
  hurry?.addEventListener("abort", onHurry, { once: true });
  try {
    return await call(limit.signal);
  } finally {
    cancel();
    hurry?.removeEventListener("abort", onHurry);
  }
}
