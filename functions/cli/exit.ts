import { constants } from "node:os";
import { InventoryError } from "../../core/inventory/inventory.ts";
import { hasCode } from "../../core/lock/errors.ts";
import { TerminalError } from "../../core/steps/errors.ts";

/** Exit statuses, after sysexits.h where it has one. */
export const EXIT = {
  /** The answer is no: sold out, a run that failed, a strategy that is not safe. */
  no: 1,
  usage: 64,
  unavailable: 69,
  software: 70,
  cannotCreate: 73,
  busy: 75,
  lost: 76,
  notExecutable: 126,
  notFound: 127,
} as const;

/** The exit status that tells a script what went wrong. */
export function statusOf(error: unknown): number {
  if (error instanceof TypeError || error instanceof RangeError) return EXIT.usage;
  if (hasStepsCode(error, "INVALID")) return EXIT.usage;
  if (hasStepsCode(error, "UNKNOWN_RUN", "UNKNOWN_WORKFLOW", "INPUT_CONFLICT")) return EXIT.no;
  if (hasCode(error, "LOCK_TIMEOUT", "TOO_MANY_WAITERS")) return EXIT.busy;
  if (hasCode(error, "LOCK_LOST", "SESSION_EXPIRED")) return EXIT.lost;
  if (hasCode(error, "STORE_UNAVAILABLE", "STORE_REFUSED", "UNKNOWN_OUTCOME")) {
    return EXIT.unavailable;
  }
  if (hasCode(error, "FENCED_OUT", "FENCE_INVALID") || error instanceof InventoryError)
    return EXIT.no;
  return EXIT.software;
}

function hasStepsCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof TerminalError && codes.includes(error.code);
}

/** As shells have it: 128 plus the signal's number. */
export function statusOfSignal(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}

/** What is wrong, in one line; with a stack only where the fault is ours. */
export function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return statusOf(error) === EXIT.software ? (error.stack ?? error.message) : error.message;
}
