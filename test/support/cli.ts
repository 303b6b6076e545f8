import { type ChildProcess, spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";

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
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd,
    env: { ...process.env, LOCKSTEP_STORE: undefined, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
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
