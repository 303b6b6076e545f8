import { type ChildProcess, spawn } from "node:child_process";
import type { Socket } from "node:net";
import { extname } from "node:path";

let reaper: ChildProcess | undefined;

/** Makes sure that the server ends, and its folder goes, when this process does. */
export function reap(pid: number, folder: string): void {
  reaper ??= startReaper();
  reaper.stdin?.write(`${pid} ${folder}\n`);
}

export function forget(folder: string): void {
  reaper?.stdin?.write(`forget ${folder}\n`);
}

function startReaper(): ChildProcess {
  const script = new URL(`./reaper${extname(import.meta.url)}`, import.meta.url);
  const child = spawn(process.execPath, [script.pathname], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  });
  child.unref();
  (child.stdin as unknown as Socket).unref();
  return child;
}
