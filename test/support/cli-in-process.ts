import { vi } from "vitest";
import { executeCommand } from "../../functions/cli/execute-command.ts";
import { type Finished, finishedWith } from "./cli.ts";
import { pause } from "./until.ts";

/** The end of the last call: the calls share the streams and the exit status of the process. */
let last: Promise<unknown> = Promise.resolve();

/**
 * Runs the command to its end within this process, which saves the start of another one. Calls of concurrent tests run one
 * after another, and what those tests print during a call is taken for the command's.
 */
export function cliInProcess(...args: readonly string[]): Promise<Finished> {
  const finished = last.then(() => execute(args));
  last = finished.catch(() => {});
  return finished;
}

async function execute(args: readonly string[]): Promise<Finished> {
  const [stdout, stderr]: [string[], string[]] = [[], []];
  const collect = (texts: string[]) => (text: string | Uint8Array) => texts.push(`${text}`) > 0;
  const spies = [
    vi.spyOn(process.stdout, "write").mockImplementation(collect(stdout)),
    vi.spyOn(process.stderr, "write").mockImplementation(collect(stderr)),
    vi.spyOn(process, "exit").mockImplementation(() => undefined as never),
    // yargs prints its help with it.
    vi.spyOn(console, "log").mockImplementation(collect(stdout)),
  ];
  vi.stubEnv("LOCKSTEP_STORE", undefined);
  try {
    await executeCommand(args);
    // A command that has loaded the user's modules ends the process in the next turn, whatever those have left open.
    await pause(1);
    const status = Number(process.exitCode ?? 0);
    return finishedWith(status, stdout.join(""), stderr.join(""));
  } finally {
    process.exitCode = undefined;
    vi.unstubAllEnvs();
    for (const spy of spies) spy.mockRestore();
  }
}
