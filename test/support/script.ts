import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { MAIN } from "./cli.ts";
import { tracked } from "./running.ts";

/** A process that runs a script of test/scripts. */
export interface Script extends Disposable {
  readonly child: ChildProcess;

  /** Returns the next line of the standard output, or undefined at its end. */
  next(): Promise<string | undefined>;

  /** Returns the next line. Rejects at the end of the output. */
  line(): Promise<string>;

  /** The exit status, or the signal that ended the process. */
  readonly ended: Promise<number | NodeJS.Signals>;
}

export function runScript(name: string, ...args: readonly string[]): Script {
  const path = fileURLToPath(new URL(`../scripts/${name}.ts`, import.meta.url));
  return runNode([path, ...args]);
}

/** Runs the command line from its sources. */
export function runCli(...args: readonly string[]): Script {
  return runNode([MAIN, ...args]);
}

export function runNode(args: readonly string[], options?: ProgramOptions): Script {
  return runProgram(process.execPath, args, options);
}

export interface ProgramOptions {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
}

export function runProgram(
  file: string,
  args: readonly string[],
  options: ProgramOptions = {},
): Script {
  const child = tracked(spawn(file, args, { ...options, stdio: ["ignore", "pipe", "inherit"] }));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await lines.next();
    return done ? undefined : value;
  };
  const ended = new Promise<number | NodeJS.Signals>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => resolve(signal ?? code ?? 0));
  });
  return {
    child,
    ended,
    next,
    async line() {
      const line = await next();
      if (line === undefined) throw new Error(`${args.join(" ")} ended without another line`);
      return line;
    },
    [Symbol.dispose]: () => void child.kill("SIGKILL"),
  };
}
