import { deadline, follow, sleep } from "./abort.ts";
import { hasCode, StoreUnavailableError, UnknownOutcomeError } from "./errors.ts";
import { LONGEST_CALL, type Millis } from "./time.ts";

/**
 * Repeats what may be repeated until it has answered: after a lost answer, and when it asks for it by
 * answering undefined. For 10 seconds, unless told otherwise.
 */
export async function insist<T>(
  address: string,
  what: string,
  signal: AbortSignal | undefined,
  once: (limit: AbortSignal) => Promise<T | undefined>,
  patience: Millis = LONGEST_CALL,
): Promise<T> {
  signal?.throwIfAborted();
  const time = deadline(patience, () => new StoreUnavailableError(address, "no answer"));
  const limit = follow(time.signal, signal);
  let lost: unknown;
  try {
    for (let look = 0; ; look += 1) {
      try {
        const answer = await once(limit.signal);
        if (answer !== undefined) return answer;
      } catch (error) {
        if (hasCode(error, "UNKNOWN_OUTCOME")) lost = error;
        else if (lost === undefined || !hasCode(error, "STORE_UNAVAILABLE")) throw error;
      }
      await sleep(Math.min(5 * 2 ** look, 200) * Math.random(), limit.signal);
    }
  } catch (error) {
    const isNotDone = lost === undefined && hasCode(error, "STORE_UNAVAILABLE");
    if (isNotDone && signal?.aborted) throw signal.reason;
    if (lost === undefined || error !== limit.signal.reason) throw error;
    throw new UnknownOutcomeError(address, what, lost);
  } finally {
    limit[Symbol.dispose]();
    time[Symbol.dispose]();
  }
}
