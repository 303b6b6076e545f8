import { rmSync } from "node:fs";
import { processesOn } from "./processes.ts";

/** Ends servers whose owner is gone, however it went: the owner holds the other end of the channel. */
const folders = new Set<string>();

process
  .on("message", (message: { readonly reap: string } | { readonly forget: string }) => {
    if ("reap" in message) folders.add(message.reap);
    else folders.delete(message.forget);
  })
  .on("disconnect", () => {
    for (const pid of [...folders].flatMap(processesOn)) kill(pid);
    // A process that is being killed may still write.
    for (const folder of folders) rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  });

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended by itself.
  }
}
