import type { Millis } from "../../core/lock/time.ts";

/** Resolves to the call's result, or to undefined if it fails or takes longer than `limit` milliseconds. */
export async function withTimeout<T>(limit: Millis, call: Promise<T>): Promise<T | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => resolve(undefined), limit);
  try {
    return await Promise.race([call.catch(() => undefined), late]);
  } finally {
    clearTimeout(timer);
  }
}
