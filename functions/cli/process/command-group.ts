import { type ChildProcess, spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { EXIT, exitStatusOfSignal } from "../exit-status.ts";
import { warn } from "../terminal/output.ts";

/**
 * A shell script that kills a process, or a group by its negative id, when all writers have closed its standard input. On
 * a busy machine, a second Node may take longer to start than a lock's ttl.
 */
const WATCHER = 'read -r target && { read -r _; kill -s KILL -- "$target"; }';

/** A shell script that sends its id to the watcher and then execs the command. The parent might die before sending the id. */
const launcher = (id: "$$" | "-$$") => `echo ${id} >&3; exec 3>&-; exec "$@"`;

/** How long processes may take to end after TERM before KILL, in milliseconds. */
const TERM_GRACE = 5_000;

/** How long killed processes may take to end, in milliseconds. A zombie that no parent reaps never ends. */
const KILL_TIME = 2_000;

/** The signals that a terminal sends to its foreground group, the group of this process. */
const FROM_TERMINAL: readonly NodeJS.Signals[] = ["SIGINT", "SIGQUIT", "SIGTSTP", "SIGWINCH"];

/**
 * A command and its descendants, in a process group of their own. A watcher process kills the group when this process
 * dies in any way.
 *
 * On a terminal, the command stays in the group of this process and the group consists of the command alone: the terminal
 * serves its foreground group only.
 */
export class CommandGroup {
  /** Resolves to the command's exit status. Its descendants may still run. */
  readonly exited: Promise<number>;
  readonly #isOwn = !process.stdin.isTTY;
  readonly #child: ChildProcess;
  readonly #watcher: ChildProcess;

  constructor(file: string, args: readonly string[], env: NodeJS.ProcessEnv) {
    // An empty environment keeps credentials from the watcher; its own session keeps terminal signals from it.
    this.#watcher = spawn("/bin/sh", ["-c", WATCHER], {
      stdio: ["pipe", "ignore", "ignore"],
      detached: true,
      env: {},
    });
    this.#watcher.on("error", () => {});
    const script = launcher(this.#isOwn ? "-$$" : "$$");
    const command = [...envPrefix(env), file, ...args];
    this.#child = spawn("/bin/sh", ["-c", script, "lockstep", ...command], {
      stdio: ["inherit", "inherit", "inherit", this.#watcher.stdin],
      env,
      detached: this.#isOwn,
    });
    this.exited = new Promise((resolve) => {
      this.#child.once("exit", (code, signal) =>
        resolve(signal ? exitStatusOfSignal(signal) : (code ?? 0)),
      );
      this.#child.once("error", (error) => {
        warn(`cannot run ${file}: lockstep needs /bin/sh: ${error.message}`);
        resolve(EXIT.notExecutable);
      });
    });
  }

  /** Forwards a signal of this process to the group. A terminal's signals reach the command by themselves. */
  forward(signal: NodeJS.Signals): void {
    if (this.#isOwn || !FROM_TERMINAL.includes(signal)) this.#send(signal);
  }

  /** Stops the group with SIGSTOP: the kernel ignores SIGTSTP in a new session. A terminal stops the group itself. */
  stop(): void {
    if (this.#isOwn) this.#send("SIGSTOP");
  }

  /** Ends the group with TERM, and with KILL after `TERM_GRACE`. */
  async end(): Promise<void> {
    this.#send("SIGTERM");
    this.#send("SIGCONT");
    if (!(await this.#endedWithin(TERM_GRACE))) {
      this.#send("SIGKILL");
      await this.#endedWithin(KILL_TIME);
    }
    this.#watcher.kill("SIGKILL");
  }

  async #endedWithin(limit: number): Promise<boolean> {
    const giveUpAt = performance.now() + limit;
    while (this.#send(0)) {
      if (performance.now() > giveUpAt) return false;
      await sleep(20);
    }
    return true;
  }

  get #target(): number | undefined {
    const { pid } = this.#child;
    return pid === undefined || !this.#isOwn ? pid : -pid;
  }

  /** Sends a signal to the group. Returns false if the group has no process. */
  #send(signal: NodeJS.Signals | 0): boolean {
    const target = this.#target;
    // The id of an ended process may be reused; the id of a group with members is not.
    const isOver = this.#child.exitCode !== null || this.#child.signalCode !== null;
    if (target === undefined || (isOver && !this.#isOwn)) return false;
    try {
      return process.kill(target, signal);
    } catch {
      return false;
    }
  }
}

/** Returns a command prefix that sets variables with names that are invalid in shells, which may drop such variables. */
function envPrefix(env: NodeJS.ProcessEnv): readonly string[] {
  const invalid = Object.entries(env).filter(([name]) => !/^[a-z_]\w*$/i.test(name));
  return invalid.length === 0 ? [] : ["env", ...invalid.map(([name, value]) => `${name}=${value}`)];
}
