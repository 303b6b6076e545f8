import {
  type ChildProcess,
  type ExecFileOptions,
  execFile,
  type StdioOptions,
  spawn,
} from "node:child_process";
import { once } from "node:events";
import { open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { sleep } from "../../core/lock/abort.ts";
import type { Command, Place } from "./kinds.ts";

/** How long a server may take to come up, in milliseconds: a cold disk and two busy cores included. */
const START_LIMIT = 60_000;

/** How much of its log an error shows, in lines: etcd says what is wrong first, and prints its usage after that. */
const LOG_LINES = 25;

interface NodeOptions {
  readonly place: Place;
  readonly command: Command;

  /** Besides that of this process. */
  readonly env: NodeJS.ProcessEnv | undefined;
  readonly serves: (port: number) => Promise<boolean>;
}

/** One server process that can be killed and started again on the same data. */
export class ServerNode {
  readonly place: Place;
  readonly #options: NodeOptions;
  #child: ChildProcess | undefined;

  constructor(options: NodeOptions) {
    this.place = options.place;
    this.#options = options;
  }

  get pid(): number {
    if (this.#child?.pid === undefined) throw new Error("the server is not running");
    return this.#child.pid;
  }

  /**
   * Resolves when it serves. It outlives this process unless somebody stops it.
   *
   * A node of a cluster serves once a majority runs: when too few are left, start several at a time.
   */
  async start(): Promise<void> {
    const log = await open(join(this.place.folder, "log"), "a");
    const [file, ...args] = this.#options.command;
    const stdio: StdioOptions = ["ignore", log.fd, log.fd];
    const env = { ...process.env, ...this.#options.env };
    const child = spawn(file, args, { stdio, env, detached: true });
    child.unref();
    this.#child = child;
    try {
      await once(child, "spawn");
      await this.#ready(child);
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    } finally {
      await log.close();
    }
  }

  /** Sends a signal, and waits for the end if it is one that ends the process. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.ref();
    const ended = once(child, "exit");
    child.kill(signal);
    if (signal === "SIGKILL" || signal === "SIGTERM") await ended;
    child.unref();
  }

  async #ready(child: ChildProcess): Promise<void> {
    const limit = Date.now() + START_LIMIT;
    while (!(await this.#options.serves(this.place.port))) {
      const ended = child.exitCode !== null || child.signalCode !== null;
      if (ended || Date.now() > limit) {
        const log = await readFile(join(this.place.folder, "log"), "utf8");
        const why = ended ? "ended at once" : `did not answer for ${START_LIMIT} ms`;
        const said = log.trimEnd().split("\n").slice(-LOG_LINES).join("\n");
        throw new Error(`${this.#options.command[0]} ${why}:\n${said}`);
      }
      await sleep(50);
    }
  }
}

/** Runs a command to its end. Rejects with what it printed last when it fails. */
export async function run(file: string, args: readonly string[], options: ExecFileOptions = {}) {
  try {
    const { stdout } = await promisify(execFile)(file, args, { ...options, encoding: "utf8" });
    return stdout;
  } catch (error) {
    const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
    const said = `${stdout}\n${stderr}`.trim().split("\n").slice(-5).join("\n");
    throw new Error(`${[file, ...args].join(" ")} failed:\n${said}`, { cause: error });
  }
}
