import type { RunOutcome } from "../../core/steps/workflow.ts";
import { redact } from "../../infra/redact.ts";
import type { Level } from "../telemetry/logged.ts";
import { type Fields, fieldsHere } from "../telemetry/scope.ts";

const LEVELS: readonly Level[] = ["debug", "info", "warn"];

/** LOCKSTEP_LOG: debug, info or warn. Anything else is info. */
const least = LEVELS.indexOf(LEVELS.find((level) => level === process.env.LOCKSTEP_LOG) ?? "info");

/** The most characters of an error's name and message: CloudWatch cuts a line of 256 KB off. */
const LONGEST_TEXT = 2_000;

/**
 * One line of JSON for what has happened, with what is known of the work that goes on: request, run, step. Of errors
 * there is the code and the message, of messages the id: no body and no stack.
 */
export function log(what: string, fields: object, level: Level = "info"): void {
  if (LEVELS.indexOf(level) < least) return;
  const known = { at: new Date().toISOString(), level, what, ...fieldsHere() };
  process.stdout.write(`${JSON.stringify({ ...known, ...fields }, brief)}\n`);
}

/** How a run went, without what it has answered. */
export function logOutcome({ runId: run, status, ...outcome }: RunOutcome<unknown>): void {
  const { output: _, ...more } = outcome as Fields;
  log("outcome", { run, status, ...more });
}

function brief(key: string, value: unknown): unknown {
  if (value instanceof Error || (key === "error" && typeof value === "object" && value)) {
    const { name, message, code } = value as Fields;
    return { name: shown(name), message: shown(message), code };
  }
  if (typeof value === "bigint") return String(value);
  if (key === "record") return (value as { readonly messageId?: unknown }).messageId;
  return value;
}

function shown(text: unknown): string {
  return redact(String(text)).slice(0, LONGEST_TEXT);
}
