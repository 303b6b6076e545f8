import { constants } from "node:os";
import { InventoryError } from "../../core/inventory/inventory.ts";
import { hasCode } from "../../core/lock/errors.ts";
import { TerminalError } from "../../core/steps/errors.ts";
import { NotInstalledError } from "../../infra/servers/binaries.ts";

/** Exit statuses, those of sysexits.h where one fits. */
export const EXIT = {
  /** A negative answer: sold out, a failed run, an unsafe strategy. */
  no: 1,
  usage: 64,
  unavailable: 69,
  software: 70,
  cannotCreate: 73,
  cannotWrite: 74,
  busy: 75,
  lost: 76,
  notExecutable: 126,
  notFound: 127,
} as const;

/** Returns the exit status for an error. */
export function exitStatusOf(error: unknown): number {
  if (error instanceof TypeError || error instanceof RangeError) return EXIT.usage;
  if (hasStepsCode(error, "INVALID", "TOO_LARGE")) return EXIT.usage;
  if (hasStepsCode(error, "UNKNOWN_RUN", "UNKNOWN_WORKFLOW", "INPUT_CONFLICT")) return EXIT.no;
  if (hasStepsCode(error, "RUN_COMPLETED", "UNDO_FAILED", "NO_FAILED_UNDO")) return EXIT.no;
  if (hasStepsCode(error, "RUN_CANCELLED", "SIGNAL_CONFLICT")) return EXIT.no;
  if (hasStepsCode(error, "UNKNOWN_STEP", "FORK_CONFLICT", "RUN_UNDOING")) return EXIT.no;
  if (hasStepsCode(error, "UNREADABLE_VALUE")) return EXIT.no;
  if (hasCode(error, "LOCK_TIMEOUT", "TOO_MANY_WAITERS")) return EXIT.busy;
  if (hasCode(error, "LOCK_LOST", "SESSION_EXPIRED")) return EXIT.lost;
  if (hasCode(error, "STORE_UNAVAILABLE", "STORE_REFUSED", "UNKNOWN_OUTCOME")) {
    return EXIT.unavailable;
  }
  if (error instanceof NotInstalledError) return EXIT.unavailable;
  if (isOfFile(error)) return EXIT.cannotCreate;
  if (hasCode(error, "FENCED_OUT", "FENCE_INVALID") || error instanceof InventoryError)
    return EXIT.no;
  return EXIT.software;
}

function hasStepsCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof TerminalError && codes.includes(error.code);
}

/** The codes of files that cannot be made: for want of rights, of space, or of a folder. */
const OF_FILES: readonly unknown[] = [
  ...["EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT"],
  ...["ENOENT", "ENOTDIR", "EISDIR", "ENAMETOOLONG"],
];

function isOfFile(error: unknown): boolean {
  return (
    error instanceof Error && "path" in error && "code" in error && OF_FILES.includes(error.code)
  );
}

/** Returns 128 plus the signal's number, like shells. */
export function exitStatusOfSignal(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}

/** Describes an error in one line. An unexpected error comes with its stack. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const status = exitStatusOf(error);
  if (status === EXIT.software) return error.stack ?? error.message;
  const isOfStore = status === EXIT.unavailable || status === EXIT.lost;
  return isOfStore ? withRootCause(error) : error.message;
}

/** Tells what the store's server or the system has said, unless the message does. */
function withRootCause(error: Error): string {
  // A set, since a chain of causes may be circular.
  const chain = new Set([error]);
  for (const { cause } of chain) if (cause instanceof Error) chain.add(cause);
  const { message } = [...chain].at(-1) ?? error;
  return error.message.includes(message) ? error.message : `${error.message} (${message})`;
}
