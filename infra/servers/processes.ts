import { execFileSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:net";

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
const LAST_PORT = 32_750;

/** Who listens on the first port of a block has all of it: nobody else takes the port of a server that is down. */
const BLOCK = 50;

/** What is left of our block. */
const ports: number[] = [];

let claiming: Promise<void> | undefined;

/** A port of loopback that nobody listens on right now; never the same twice. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = ports.shift();
    if (port === undefined) await claimOnce();
    else if (await isFree(port)) return port;
  }
}

function claimOnce(): Promise<void> {
  claiming ??= claimBlock().finally(() => {
    claiming = undefined;
  });
  return claiming;
}

/** It is ours until this process ends. */
async function claimBlock(): Promise<void> {
  for (;;) {
    const first = FIRST_PORT + BLOCK * randomInt((LAST_PORT - FIRST_PORT) / BLOCK);
    const guard = await listen(first);
    if (guard === undefined) continue;
    guard.unref();
    ports.push(...Array.from({ length: BLOCK - 1 }, (_, i) => first + 1 + i));
    return;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = await listen(port);
  if (server) await new Promise((resolve) => server.close(resolve));
  return server !== undefined;
}

/** Undefined: somebody does already. */
function listen(port: number): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(undefined);
      else reject(error);
    });
    server.listen(port, "127.0.0.1", () => resolve(server));
  });
}
