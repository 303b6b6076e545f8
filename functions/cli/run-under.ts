import { type ChildProcess, spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import type { Lock } from "../../core/lock/lock.ts";
import { EXIT, statusOfSignal } from "./exit.ts";
import { warn } from "./options.ts";
import { onSignal } from "./signals.ts";

/** How long a command may take to end after its lock was lost, before it is killed, in milliseconds. */
const GRACE = 5_000;

/**
 * Runs a command while the lock is held, and resolves to the exit status to leave with.
 *
 * Signals are passed on. If the lock is lost, the command and all that it has started are told to end, and
 * killed if they do not; on a terminal, the command alone.
 */
export async function runUnder(
  lock: Lock,
  [file, ...args]: readonly [string, ...string[]],
  environment: Readonly<Record<string, string>>,
): Promise<number> {
  lock.assertHeld();
  const group = new Group(file, args, { ...process.env, ...environment });
  let ending: Promise<void> | undefined;
  const onLost = () => {
    warn(String(lock.signal.reason.message));
    ending = group.end();
  };
  lock.signal.addEventListener("abort", onLost, { once: true });
  const signals = onSignal((signal) => group.pass(signal));
  try {
    const status = await group.exited;
    await ending;
    return lock.signal.aborted ? EXIT.lost : status;
  } finally {
    signals[Symbol.dispose]();
    lock.signal.removeEventListener("abort", onLost);
  }
}

/**
 * A command with a process group of its own.
 *
 * Not on a terminal: that one reads from, interrupts and stops the group in its foreground, which is ours.
 */
class Group {
  readonly exited: Promise<number>;
  readonly #isOwn = !process.stdin.isTTY;
  readonly #child: ChildProcess;

  constructor(file: string, args: readonly string[], env: NodeJS.ProcessEnv) {
    this.#child = spawn(file, args, { stdio: "inherit", env, detached: this.#isOwn });
    this.exited = new Promise((resolve) => {
      this.#child.once("exit", (code, signal) =>
        resolve(signal ? statusOfSignal(signal) : (code ?? 0)),
      );
      this.#child.once("error", (error: NodeJS.ErrnoException) => {
        warn(`cannot run ${file}: ${error.code}`);
        resolve(error.code === "ENOENT" ? EXIT.notFound : EXIT.notExecutable);
      });
    });
  }

  /** Hands on a signal that came to us. The terminal's interrupt has come to the command already. */
  pass(signal: NodeJS.Signals): void {
    if (this.#isOwn || signal !== "SIGINT") this.#send(signal);
  }

  /** TERM, and KILL for whoever is left after a while. */
  async end(): Promise<void> {
    this.#send("SIGTERM");
    const killAt = performance.now() + GRACE;
    while (this.#send(0)) {
      if (performance.now() > killAt) return void this.#send("SIGKILL");
      await sleep(50);
    }
  }

  /** False: nobody is left. */
  #send(signal: NodeJS.Signals | 0): boolean {
    const { pid } = this.#child;
    if (pid === undefined || !this.#isOwn) return this.#child.kill(signal);
    try {
      return process.kill(-pid, signal);
    } catch {
      return false;
    }
  }
}
