import { type ChildProcess, spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { tracked } from "./running.ts";

export const MAIN = fileURLToPath(new URL("../../functions/cli/main.ts", import.meta.url));

export interface Finished {
  /** The exit status, or the signal that ended the process. */
  readonly status: number | NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly child: ChildProcess;
  readonly finished: Promise<Finished>;
}

/** Starts the command line from its sources, with standard output and standard error in pipes. */
export function startCli(
  args: readonly string[],
  { cwd, env }: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv } = {},
): Running {
  const child = tracked(
    spawn(process.execPath, [MAIN, ...args], {
      cwd,
      env: { ...process.env, LOCKSTEP_STORE: undefined, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    }),
  );
  const finished = Promise.all([
    text(child.stdout),
    text(child.stderr),
    new Promise<Finished["status"]>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (code, signal) => resolve(signal ?? code));
    }),
  ]).then(([stdout, stderr, status]) => ({ status, stdout, stderr }));
  return { child, finished };
}

export function cli(...args: readonly string[]): Promise<Finished> {
  return startCli(args).finished;
}

export interface Terminal {
  /** Everything that it has shown. */
  readonly shown: () => string;
  type(keys: string): void;
  readonly status: Promise<number | null>;
}

/** Runs the command line on a terminal of its own. */
export function onTerminal(...args: readonly string[]): Terminal {
  // `exec`: a shell that stayed would be interrupted too, and answer with a status of its own.
  const line = `exec ${[process.execPath, MAIN, ...args].map(shellWord).join(" ")}`;
  const plain = { LOCKSTEP_STORE: undefined, CI: undefined, NO_COLOR: undefined };
  const env = { ...process.env, ...plain, TERM: "xterm-256color" };
  const child = tracked(spawn("script", ["-qec", line, "/dev/null"], { env, stdio: "pipe" }));
  let shown = "";
  child.stdout.on("data", (data) => {
    shown += data;
  });
  const status = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  return { shown: () => shown, type: (keys) => void child.stdin.write(keys), status };
}

function shellWord(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
