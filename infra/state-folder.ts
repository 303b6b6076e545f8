import { homedir } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { StoreRefusedError } from "../core/lock/errors.ts";

/** Returns the file of the default store: one per user, in any working directory. */
export function defaultFile(environment?: NodeJS.ProcessEnv): string {
  return join(stateFolder(environment), "lockstep.db");
}

/**
 * Returns the user's folder for the state of commands.
 *
 * https://specifications.freedesktop.org/basedir-spec/latest/ (a relative XDG_STATE_HOME is invalid and ignored)
 */
export function stateFolder(
  { XDG_STATE_HOME: home = "" }: NodeJS.ProcessEnv = process.env,
): string {
  return join(isAbsolute(home) ? home : join(homedir(), ".local", "state"), "lockstep");
}

/** Makes the folder of the user's own file, for the user alone. The folder of any other file is the user's business. */
export function makeDefaultFolder(file: string): void {
  if (file !== defaultFile()) return;
  const folder = dirname(file);
  try {
    // An import of node:fs would load Node's streams.
    process.getBuiltinModule("node:fs").mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    const problem = `its folder cannot be made: ${(error as Error).message}`;
    throw new StoreRefusedError(`sqlite:${file}`, `${problem}; name a store by its URL`, error);
  }
}
