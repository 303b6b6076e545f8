import { hasCode } from "../../core/lock/errors.ts";
import { until } from "./until.ts";

/** Repeats a call that gives up on a busy machine: a sale under the same operation id learns what happened. */
export function known<T>(call: () => Promise<T>): Promise<T> {
  return until(async () => {
    try {
      return { answer: await call() };
    } catch (error) {
      if (!hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) throw error;
      return undefined;
    }
  }).then(({ answer }) => answer);
}
