import { type ChildProcess, fork } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";

let reaper: ChildProcess | undefined;

/**
 * Registers a target that is removed when this process ends in any way: the process with this id, or this folder and all
 * processes with the folder on their command line.
 */
export function reap(target: string | number): void {
  reaper ??= startReaper();
  reaper.send({ reap: target });
}

/** Removes a target from the register. */
export function forget(target: string | number): void {
  reaper?.send({ forget: target });
}

export interface TemporaryFolder extends AsyncDisposable {
  readonly path: string;

  remove(): Promise<void>;
}

/** Makes a folder that is removed by its disposal and when this process ends in any way. */
export async function temporaryFolder(name: string): Promise<TemporaryFolder> {
  const path = await mkdtemp(join(tmpdir(), `lockstep-${name}-`));
  reap(path);
  const remove = async () => {
    await rm(path, { recursive: true, force: true, maxRetries: 10 });
    forget(path);
  };
  return { path, remove, [Symbol.asyncDispose]: remove };
}

function startReaper(): ChildProcess {
  const script = new URL(`./reaper${extname(import.meta.url)}`, import.meta.url);
  const child = fork(script, { stdio: "ignore", detached: true, execArgv: [] });
  child.unref();
  child.channel?.unref();
  return child;
}
