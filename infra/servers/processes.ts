import { execFileSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";

/** Whether a process with this id runs on this folder: ids are given out again after a while. */
export function isOurs(pid: number, folder: string): boolean {
  return commandOf(pid).includes(folder);
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    // No such process, or no /proc on this system.
  }
  try {
    return execFileSync("ps", ["-o", "command=", "-p", String(pid)], { encoding: "utf8" });
  } catch {
    return "";
  }
}

/** Below what systems give to outgoing connections: one of those could take a server's port while it is down. */
const FIRST_PORT = 10_000;
const LAST_PORT = 32_767;

let nextPort = randomInt(FIRST_PORT, LAST_PORT);

/** A port of loopback that nobody listens on right now; not the same twice in a row. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = nextPort;
    nextPort = port === LAST_PORT ? FIRST_PORT : port + 1;
    if (await isFree(port)) return port;
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(false);
      else reject(error);
    });
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
