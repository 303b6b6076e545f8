import { type ExecFileOptions, execFile, execFileSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { promisify } from "node:util";

/** Whether the process with this id runs on this folder. Process ids are reused. */
export function isRunningOn(pid: number, folder: string): boolean {
  return processesOn(folder).includes(pid);
}

/** Returns the ids of all processes with this folder on their command line. */
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
  if (!existsSync("/proc/self/cmdline")) return listWithPs();
  const pids = readdirSync("/proc").map(Number).filter(Number.isInteger);
  return pids.map((pid) => ({ pid, command: commandOf(pid) }));
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    // The process has ended meanwhile.
    return "";
  }
}

/** Lists processes without /proc, as on macOS. */
function listWithPs(): readonly Process[] {
  const output = execFileSync("ps", ["-axww", "-o", "pid=,command="], { encoding: "utf8" });
  return output.split("\n").map((line) => ({ pid: Number.parseInt(line, 10), command: line }));
}

/** The range below the ephemeral ports: an outgoing connection could take the port of a stopped server. */
const FIRST_PORT = 10_000;
const LAST_PORT = 32_750;

/**
 * The number of ports in a block. The process that listens on the first port owns the block: no other process takes the
 * port of a stopped server.
 */
const BLOCK_SIZE = 50;

/** The unused ports of this process's block. */
const ports: number[] = [];

let claiming: Promise<void> | undefined;

/** Returns a free port of loopback, a different one for each call. */
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

/** Claims a block until this process ends. */
async function claimBlock(): Promise<void> {
  for (;;) {
    const first = FIRST_PORT + BLOCK_SIZE * randomInt((LAST_PORT - FIRST_PORT) / BLOCK_SIZE);
    const guard = await listen(first);
    if (guard === undefined) continue;
    guard.unref();
    ports.push(...Array.from({ length: BLOCK_SIZE - 1 }, (_, i) => first + 1 + i));
    return;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = await listen(port);
  if (server) await new Promise((resolve) => server.close(resolve));
  return server !== undefined;
}

/** Listens on the port. Resolves to undefined if the port is in use. */
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

/** Runs a command to its end. Resolves to its output; rejects with the last lines of its output if it fails. */
export async function run(file: string, args: readonly string[], options: ExecFileOptions = {}) {
  try {
    const { stdout } = await promisify(execFile)(file, args, { ...options, encoding: "utf8" });
    return stdout;
  } catch (error) {
    const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
    const output = `${stdout}\n${stderr}`.trim().split("\n").slice(-5).join("\n");
    throw new Error(`${[file, ...args].join(" ")} failed:\n${output}`, { cause: error });
  }
}
