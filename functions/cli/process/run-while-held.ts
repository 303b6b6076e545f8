import type { Fence } from "../../../core/lock/fence.ts";
import { isHeld } from "../../../core/lock/lock-handle.ts";
import { describeError, EXIT } from "../exit-status.ts";
import { warn } from "../terminal/output.ts";
import { CommandGroup } from "./command-group.ts";
import { onSignal, onSuspend, TERMINATING } from "./signals.ts";

/** A lock, or the leadership of an election. */
export interface HeldLock {
  readonly name: string;
  readonly fence: Fence;
  readonly signal: AbortSignal;
  assertHeld(): void;

  /** Releases the lock, as far as the store can be reached. Never rejects. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Runs a command while the lock is held. Resolves to the exit status of this process.
 *
 * Forwards signals. Ends all descendants of the command before resolving, also if the lock is lost.
 */
export async function runWhileHeld(
  lock: HeldLock,
  [file, ...args]: readonly [string, ...string[]],
  environment: Readonly<Record<string, string>>,
): Promise<number> {
  lock.assertHeld();
  // The handlers are set before the command starts: its first action may be a signal. They run after this turn only.
  using _forwarded = onSignal((signal) => group.forward(signal), [...TERMINATING, "SIGWINCH"]);
  // A command that was stopped while its lock was lost is not continued: the loss ends it. A shell's `fg` continues both
  // processes by itself, so there the command may go on until the loss has ended it.
  const resume = () => isHeld(lock) && group.forward("SIGCONT");
  using _stopped = onSuspend(() => group.stop(), resume);
  using _continued = onSignal(resume, ["SIGCONT"]);
  const group = new CommandGroup(file, args, { ...process.env, ...environment });
  let ending: Promise<void> | undefined;
  const onLost = () => {
    warn(describeError(lock.signal.reason));
    ending ??= group.end();
  };
  lock.signal.addEventListener("abort", onLost, { once: true });
  try {
    const status = await group.exited;
    ending ??= group.end();
    await ending;
    return lock.signal.aborted ? EXIT.lost : status;
  } finally {
    lock.signal.removeEventListener("abort", onLost);
  }
}
