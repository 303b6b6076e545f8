import { execFileSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";

/** Whether a process with this id runs on this folder: ids are given out again after a while. */
export function isOurs(pid: number, folder: string): boolean {
  return processesOn(folder).includes(pid);
}

/** The ids of all processes that have this folder on their command line. */
export function processesOn(folder: string): readonly number[] {
  return allProcesses()
    .filter(({ command }) => command.includes(folder))
    .map(({ pid }) => pid);
}

interface Process {
  readonly pid: number;
  readonly command: string;
}

function allProcesses(): readonly Process[] {
  if (!existsSync("/proc/self/cmdline")) return printedByPs();
  const pids = readdirSync("/proc").map(Number).filter(Number.isInteger);
  return pids.map((pid) => ({ pid, command: commandOf(pid) }));
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    // It has ended meanwhile.
    return "";
  }
}

/** Where there is no /proc, as on macOS. */
function printedByPs(): readonly Process[] {
  const printed = execFileSync("ps", ["-axww", "-o", "pid=,command="], { encoding: "utf8" });
  return printed.split("\n").map((line) => ({ pid: Number.parseInt(line, 10), command: line }));
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
