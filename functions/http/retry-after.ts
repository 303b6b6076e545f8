import type { Millis } from "../../core/lock/time.ts";

/** When to look after a run that only a signal wakes. */
const LOOK_LATER: Millis = 60_000;

/** In whole seconds, and never at once. */
export function retryAfter(span: Millis): Record<string, string> {
  const wait = Number.isFinite(span) ? span : LOOK_LATER;
  return { "Retry-After": String(Math.max(1, Math.ceil(wait / 1_000))) };
}
