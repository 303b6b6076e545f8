import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { tracked } from "./running.ts";

export const MAIN = fileURLToPath(new URL("../../functions/cli/main.ts", import.meta.url));

export interface Finished {
  /** The exit status, or the signal that ended the process. */
  readonly status: number | NodeJS.Signals | null;
  readonly stdout: string;

  /** Standard error, without the line that names the store. */
  readonly stderr: string;

  /** The store's URL, as printed on standard error. */
  readonly store: string | undefined;
}

export interface Running {
  readonly child: ChildProcess;
  readonly finished: Promise<Finished>;
}

/** Starts the command from its sources, with its output in pipes and its default store in `cwd`. */
export function startCli(
  args: readonly string[],
  { cwd, env }: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv } = {},
): Running {
  const child = tracked(
    spawn(process.execPath, [MAIN, ...args], {
      cwd,
      env: {
        ...process.env,
        LOCKSTEP_STORE: undefined,
        ...(cwd && { XDG_STATE_HOME: cwd }),
        ...env,
      },
      stdio: ["ignore", "pipe", "pipe"],
    }),
  );
  const finished = Promise.all([
    text(child.stdout),
    text(child.stderr),
    new Promise<number | NodeJS.Signals | null>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (code, signal) => resolve(signal ?? code));
    }),
  ]).then(([stdout, output, status]) => finishedWith(status, stdout, output));
  return { child, finished };
}

/** Takes the line that names the store out of the output on standard error. */
export function finishedWith(status: Finished["status"], stdout: string, output: string): Finished {
  const [line = "", store] = /^lockstep: store (.*)\n/m.exec(output) ?? [];
  return { status, stdout, stderr: output.replace(line, ""), store };
}

/** Resolves once the process has printed something. Rejects if it ends without any output. */
export async function untilPrinted({ child, finished }: Running): Promise<void> {
  const endedEarly = finished.then(({ status, stdout, stderr }) => {
    if (stdout === "") throw new Error(`ended with ${status}: ${stderr}`);
  });
  await Promise.race([child.stdout && once(child.stdout, "data"), endedEarly]);
}

/** Runs the command to its end. */
export function cli(...args: readonly string[]): Promise<Finished> {
  return startCli(args).finished;
}

export interface Terminal {
  /** Returns the whole output so far. */
  readonly shown: () => string;
  type(keys: string): void;
  readonly status: Promise<number | null>;
}

/** Runs the command on a new terminal. */
export function onTerminal(...args: readonly string[]): Terminal {
  return programOnTerminal(process.execPath, MAIN, ...args);
}

/** Runs a program on a new terminal. */
export function programOnTerminal(...words: readonly string[]): Terminal {
  // `exec`: a remaining shell would be interrupted as well and exit with its own status.
  const line = `exec ${words.map(shellWord).join(" ")}`;
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

/** Quotes a word for a shell. */
export function shellWord(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
