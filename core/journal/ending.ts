import type { Ended, Ending } from "./journal.ts";

/** What a child's signal tells its parent. */
export function toPayload({ status, value, compensated }: Omit<Ending, "keep">): string {
  return JSON.stringify({ status, value, compensated });
}

/** What `toPayload` was given. */
export function fromPayload(payload: string): Omit<Ended, "at"> {
  return JSON.parse(payload);
}
