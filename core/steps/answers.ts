import { checkText } from "../lock/checks.ts";
import { hashOf } from "./codec.ts";
import type { ErrorInfo } from "./errors.ts";

/** The value of the record of an answered update. */
export type UpdateAnswer =
  | { readonly output: unknown; readonly error?: undefined }
  | { readonly error: ErrorInfo };

/** Returns the key of the record of an update's answer. */
export function answerKey(update: string, dedupeId: string): string {
  return `~answer/${hashOf([update, dedupeId])}`;
}

/** Returns the beginning of the keys of all records of a published name. */
export function publishedPrefix(name: string): string {
  checkText("published name", name, 100);
  return `~published/${encodeURIComponent(name)}/`;
}
