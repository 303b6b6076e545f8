import { rmSync } from "node:fs";
import { createInterface } from "node:readline";
import { isOurs } from "./processes.ts";

/**
 * Ends servers whose owner is gone, however it went: the owner holds the other end of standard input.
 *
 * Each line is "pid folder"; "forget folder" takes it back.
 */
const servers = new Map<string, number>();

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const [word = "", folder = ""] = line.split(/ (.*)/);
    if (word === "forget") servers.delete(folder);
    else servers.set(folder, Number(word));
  })
  .on("close", () => {
    for (const [folder, pid] of servers) {
      if (isOurs(pid, folder)) process.kill(pid, "SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    }
  });
