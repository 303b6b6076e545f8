import { type ChildProcess, fork } from "node:child_process";
import { extname } from "node:path";

let reaper: ChildProcess | undefined;

/** Makes sure that this folder, and every process with its name on the command line, ends when this process does. */
export function reap(folder: string): void {
  reaper ??= startReaper();
  reaper.send({ reap: folder });
}

export function forget(folder: string): void {
  reaper?.send({ forget: folder });
}

function startReaper(): ChildProcess {
  const script = new URL(`./reaper${extname(import.meta.url)}`, import.meta.url);
  const child = fork(script, { stdio: "ignore", detached: true, execArgv: [] });
  child.unref();
  child.channel?.unref();
  return child;
}
