import { type ChildProcess, type ExecFileOptions, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { open, readFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { sleep } from "../../core/lock/abort.ts";
import type { Command, Place } from "./kinds.ts";

/** How long a server may take to come up, in milliseconds: a cold disk and two busy cores included. */
const START_LIMIT = 60_000;

/** One server process that can be killed and started again on the same data. */
export class ServerNode {
  readonly place: Place;
  readonly #command: Command;
  #child: ChildProcess | undefined;

  constructor(place: Place, command: Command) {
    this.place = place;
    this.#command = command;
  }

  get pid(): number {
    if (this.#child?.pid === undefined) throw new Error("the server is not running");
    return this.#child.pid;
  }

  /** Resolves when it accepts connections. It outlives this process unless somebody stops it. */
  async start(): Promise<void> {
    const log = await open(join(this.place.folder, "log"), "a");
    const [file, ...args] = this.#command;
    const child = spawn(file, args, { stdio: ["ignore", log.fd, log.fd], detached: true });
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
    while (!(await accepts(this.place.port))) {
      const ended = child.exitCode !== null || child.signalCode !== null;
      if (ended || Date.now() > limit) {
        const log = await readFile(join(this.place.folder, "log"), "utf8");
        const why = ended ? "ended at once" : `did not answer for ${START_LIMIT} ms`;
        throw new Error(
          `${this.#command[0]} ${why}:\n${log.trimEnd().split("\n").slice(-5).join("\n")}`,
        );
      }
      await sleep(50);
    }
  }
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1" });
    const answer = (accepted: boolean) => {
      socket.destroy();
      resolve(accepted);
    };
    socket.once("connect", () => answer(true)).once("error", () => answer(false));
  });
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
