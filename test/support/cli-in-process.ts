import { vi } from "vitest";
import { executeCommand } from "../../functions/cli/execute-command.ts";
import type { Finished } from "./cli.ts";

/** Runs the command to its end within this process, which saves the start of another one. Not for concurrent tests. */
export async function cliInProcess(...args: readonly string[]): Promise<Omit<Finished, "store">> {
  const [stdout, stderr]: [string[], string[]] = [[], []];
  const collect = (texts: string[]) => (text: string | Uint8Array) => texts.push(`${text}`) > 0;
  const spies = [
    vi.spyOn(process.stdout, "write").mockImplementation(collect(stdout)),
    vi.spyOn(process.stderr, "write").mockImplementation(collect(stderr)),
    // yargs prints its help with it.
    vi.spyOn(console, "log").mockImplementation(collect(stdout)),
  ];
  vi.stubEnv("LOCKSTEP_STORE", undefined);
  try {
    await executeCommand(args);
    const status = Number(process.exitCode ?? 0);
    return { status, stdout: stdout.join(""), stderr: stderr.join("") };
  } finally {
    process.exitCode = undefined;
    vi.unstubAllEnvs();
    for (const spy of spies) spy.mockRestore();
  }
}
