import { spawn } from "node:child_process";
import type { Lock } from "../../core/lock/lock.ts";
import { EXIT, statusOfSignal } from "./exit.ts";
import { warn } from "./options.ts";
import { onSignal } from "./signals.ts";

/** How long a command may take to end after its lock was lost, before it is killed, in milliseconds. */
const GRACE = 5_000;

/**
 * Runs a command while the lock is held, and resolves to the exit status to leave with.
 *
 * Signals are passed on. If the lock is lost, the command is told to end, and killed if it does not.
 */
export function runUnder(
  lock: Lock,
  [file, ...args]: readonly [string, ...string[]],
  environment: Readonly<Record<string, string>>,
): Promise<number> {
  return new Promise((resolve) => {
    const env = { ...process.env, ...environment };
    const child = spawn(file, args, { stdio: "inherit", env });
    let killing: NodeJS.Timeout | undefined;
    const onLost = () => {
      warn(String(lock.signal.reason.message));
      child.kill("SIGTERM");
      killing = setTimeout(() => child.kill("SIGKILL"), GRACE);
    };
    // The terminal sends its own interrupt to the whole group: the command has it already.
    const signals = onSignal((signal) => {
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
    const finish = (status: number) => {
      clearTimeout(killing);
      signals[Symbol.dispose]();
      lock.signal.removeEventListener("abort", onLost);
      resolve(lock.signal.aborted ? EXIT.lost : status);
    };
    lock.signal.addEventListener("abort", onLost, { once: true });
    child.once("exit", (code, signal) => finish(signal ? statusOfSignal(signal) : (code ?? 0)));
    child.once("error", (error: NodeJS.ErrnoException) => {
      warn(`cannot run ${file}: ${error.code}`);
      finish(error.code === "ENOENT" ? EXIT.notFound : EXIT.notExecutable);
    });
  });
}
