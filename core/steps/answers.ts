import type { RunSignal } from "../journal/runs.ts";
import { checkText } from "../lock/checks.ts";
import { decode, hashOf } from "./codec.ts";
import { isSealed } from "./envelope.ts";
import { type ErrorInfo, signalConflict } from "./errors.ts";

/** The value of the record of an answered update. */
export type UpdateAnswer =
  | { readonly output: unknown; readonly error?: undefined }
  | { readonly error: ErrorInfo };

/** Returns the key of the record of an update's answer. */
export function answerKey(update: string, dedupeId: string): string {
  return `~answer/${hashOf([update, dedupeId])}`;
}

/** Throws SIGNAL_CONFLICT unless the payload is that of an earlier signal with the same dedupe id. */
export function checkSamePayload({ name, payload }: RunSignal, sent: unknown): void {
  // Only a process with the codec can tell.
  if (isSealed(payload) || hashOf(decode(payload)) === hashOf(sent)) return;
  throw signalConflict(name);
}

/** Returns the beginning of the keys of all records of a published name. */
export function publishedPrefix(name: string): string {
  checkText("published name", name, 100);
  return `~published/${encodeURIComponent(name)}/`;
}
