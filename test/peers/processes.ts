import { type ChildProcess, spawn } from "node:child_process";
import type { Server } from "../../infra/servers/server.ts";
import { wiresTo } from "../campaign/stores.ts";
import { tracked } from "../support/running.ts";
import type { TcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";

export interface RunningProcess {
  readonly child: ChildProcess;

  /** Its own connections to the servers. */
  readonly wires: readonly TcpProxy[];
}

/** How a process reaches the servers, through its wires. */
export interface Reach {
  readonly url: string;

  /** host:port of each server that the URL names. */
  readonly nodes: readonly string[];
}

interface ProcessesOptions {
  readonly count: number;
  readonly script: string;
  readonly server: Pick<Server, "url" | "nodes">;

  /** The arguments of the process in a slot. */
  argsOf(reach: Reach, slot: number): readonly string[];
}

/** Processes with connections of their own. Each one is replaced in its slot when it ends. */
export class Processes implements AsyncDisposable {
  /** Those that ended by an error that nothing could catch. */
  crashed = 0;
  readonly #options: ProcessesOptions;
  readonly #slots: (RunningProcess | undefined)[] = [];
  #isEnding = false;

  private constructor(options: ProcessesOptions) {
    this.#options = options;
  }

  static async start(options: ProcessesOptions): Promise<Processes> {
    const processes = new Processes(options);
    for (let slot = 0; slot < options.count; slot += 1) await processes.#start(slot);
    return processes;
  }

  /** The process in a slot; undefined until a lost one is replaced. */
  at(slot: number): RunningProcess | undefined {
    return this.#slots[slot];
  }

  byPid(pid: number): RunningProcess | undefined {
    return this.#running.find(({ child }) => child.pid === pid);
  }

  kill(): void {
    for (const { child } of this.#running) child.kill("SIGKILL");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isEnding = true;
    this.kill();
    await until(() => this.#running.length === 0);
  }

  get #running(): readonly RunningProcess[] {
    return this.#slots.filter((each) => each !== undefined);
  }

  async #start(slot: number): Promise<void> {
    const { server, script, argsOf } = this.#options;
    const { url, wires } = await wiresTo(server);
    const nodes = url.match(/[\d.]+:\d+/g) ?? [];
    const stdio = ["ignore", "ignore", "ignore", "ipc"] as const;
    const args = [script, ...argsOf({ url, nodes }, slot)];
    const child = tracked(spawn(process.execPath, args, { stdio: [...stdio] }));
    this.#slots[slot] = { child, wires };
    child.once("exit", async (_, signal) => {
      this.#slots[slot] = undefined;
      if (signal === null) this.crashed += 1;
      await Promise.all(wires.map((wire) => wire.close()));
      if (!this.#isEnding) await this.#start(slot);
    });
  }
}
