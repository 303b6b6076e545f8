import { spawnSync } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { processesOn } from "./processes.ts";

type Target = string | number;

/** Removes its targets when its parent has ended and the channel between them is closed. */
const targets = new Set<Target>();

process
  .on("message", (message: { readonly reap: Target } | { readonly forget: Target }) => {
    if ("reap" in message) targets.add(message.reap);
    else targets.delete(message.forget);
  })
  .on("disconnect", () => {
    const folders = [...targets].filter((target) => typeof target === "string");
    const pids = [...targets].filter((target) => typeof target === "number");
    for (const pid of [...pids, ...folders.flatMap(processesOn)]) kill(pid);
    for (const folder of folders) void removeFolder(folder);
  });

const ATTEMPTS = 100;

/**
 * Tries until the folder is gone: a killed process may still write files, and after a file that the reaper of another
 * process has removed, `rmSync` returns as if it had removed the folder.
 */
async function removeFolder(folder: string): Promise<void> {
  for (let i = 0; i < ATTEMPTS && existsSync(folder); i += 1) {
    try {
      rmSync(folder, { recursive: true, force: true });
    } catch {
      // A file system may be mounted there: the error of a busy folder has no code. The next attempt follows.
      spawnSync("umount", ["--lazy", folder]);
    }
    await sleep(100);
    for (const pid of processesOn(folder)) kill(pid);
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // The process has already ended.
  }
}
