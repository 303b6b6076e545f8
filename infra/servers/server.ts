import { type ChildProcess, type StdioOptions, spawn } from "node:child_process";
import { once } from "node:events";
import { open, readFile } from "node:fs/promises";
import { constants, setPriority } from "node:os";
import { join } from "node:path";
import { sleep } from "../../core/lock/abort.ts";
import type { ServerName } from "./kinds.ts";
import type { Command, NodeConfig } from "./server-kind.ts";

/** How long a server may take to start, in milliseconds, on a cold disk and two busy cores. */
const START_LIMIT = 180_000;

/** How long a killed server that ends at once is started again: PostgreSQL refuses a start while children of the killed process run. */
const RESTART_LIMIT = 60_000;

/** How many log lines an error shows: etcd prints its usage after the error. */
const LOG_LINES = 25;

/** A real server on loopback. Its data is deleted when it stops. */
export interface Server extends AsyncDisposable {
  readonly name: ServerName;
  readonly version: string;
  readonly url: string;

  /** The processes of the server; empty if it runs in containers. */
  readonly nodes: readonly ServerNode[];

  /** The Docker project, if the server runs in containers. */
  readonly project?: string;
  stop(): Promise<void>;
}

interface NodeOptions {
  readonly config: NodeConfig;
  readonly command: Command;

  /** Variables added to the environment of this process. */
  readonly env: NodeJS.ProcessEnv | undefined;
  readonly serves: (port: number) => Promise<boolean>;
}

/** A server process that can be killed and restarted on the same data. */
export class ServerNode {
  readonly config: NodeConfig;
  readonly #options: NodeOptions;
  #child: ChildProcess | undefined;

  constructor(options: NodeOptions) {
    this.config = options.config;
    this.#options = options;
  }

  get pid(): number {
    if (this.#child?.pid === undefined) throw new Error("the server is not running");
    return this.#child.pid;
  }

  /** Whether the process was started, and has ended. */
  get hasEnded(): boolean {
    return this.#child !== undefined && hasEnded(this.#child);
  }

  /**
   * Starts the process. Resolves when it serves requests. The process outlives this one unless it is stopped.
   *
   * A node of a cluster serves requests once a majority runs: without a majority, start several nodes concurrently.
   */
  async start(): Promise<void> {
    const limit = this.#child ? Date.now() + RESTART_LIMIT : 0;
    for (;;) {
      try {
        return await this.#start();
      } catch (error) {
        if (Date.now() >= limit) throw error;
        await sleep(100);
      }
    }
  }

  async #start(): Promise<void> {
    const log = await open(join(this.config.folder, "log"), "a");
    const [file, ...args] = this.#options.command;
    const stdio: StdioOptions = ["ignore", log.fd, log.fd];
    const env = { ...process.env, ...this.#options.env };
    const child = spawn(file, args, { stdio, env, detached: true });
    child.unref();
    this.#child = child;
    try {
      await once(child, "spawn");
      prioritize(this.pid);
      await this.#waitUntilReady(child);
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    } finally {
      await log.close();
    }
  }

  /** Sends a signal. Waits for the end of the process after KILL, TERM, INT or QUIT. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (!child || hasEnded(child)) return;
    child.ref();
    const ended = once(child, "exit");
    child.kill(signal);
    if (["SIGKILL", "SIGTERM", "SIGINT", "SIGQUIT"].includes(signal)) await ended;
    child.unref();
  }

  async #waitUntilReady(child: ChildProcess): Promise<void> {
    const limit = Date.now() + START_LIMIT;
    while (!(await this.#options.serves(this.config.port))) {
      const ended = hasEnded(child);
      if (ended || Date.now() > limit) {
        const log = await readFile(join(this.config.folder, "log"), "utf8");
        const why = ended ? "ended at once" : `did not answer for ${START_LIMIT} ms`;
        const tail = log.trimEnd().split("\n").slice(-LOG_LINES).join("\n");
        throw new Error(`${this.#options.command[0]} ${why}:\n${tail}`);
      }
      await sleep(50);
    }
  }
}

/** Runs a server before its clients on busy cores: clients give up within seconds. Only root may. */
function prioritize(pid: number): void {
  try {
    setPriority(pid, constants.priority.PRIORITY_ABOVE_NORMAL);
  } catch {
    // Only root may raise a priority; a process that has ended is reported by its start.
  }
}

/** Whether the process has ended. */
export function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}
