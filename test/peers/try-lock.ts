import { type ChildProcess, spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { ServerName } from "../../infra/servers/kinds.ts";
import type { Server, ServerNode } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { DURABLE_REDIS, wiresTo } from "../campaign/stores.ts";
import { QUICK_ETCD } from "../support/etcd-servers.ts";
import { tracked } from "../support/running.ts";
import type { TcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";
import { FAULTS, type Fault, type FaultName, type Victim } from "./faults.ts";
import { CONTESTANTS, type Contestant, type ContestantName } from "./locks.ts";
import type { LockOptions } from "./named-lock.ts";
import { type Counts, Register } from "./register.ts";

/** What became of one fault, over all its rounds. */
export interface Outcome extends Counts {
  readonly fault: FaultName;
  readonly rounds: number;

  /** Contenders that ended by an error that nothing could catch. */
  readonly crashed: number;

  /** Rounds after which nobody got the lock within 30 s, so that all contenders had to be started anew. */
  readonly stuck: number;

  /** The longest time in which nobody got the lock, in milliseconds. */
  readonly longestPause: number;
}

export interface Trial {
  readonly lock: string;
  readonly package: string;
  readonly usage: string;
  readonly server: string;
  readonly outcomes: readonly Outcome[];
}

export interface TrialOptions {
  readonly faults: readonly FaultName[];

  /** How often each fault is injected. */
  readonly rounds: number;

  /** The ttl of locks, in milliseconds. */
  readonly ttl: number;
  readonly onProgress: (step: string) => void;
}

const CONTENDERS = 4;
const CONTENDER = fileURLToPath(new URL("./contender.ts", import.meta.url));

/** How many turns show that the line moves again. */
const TURNS_AFTER = 2 * CONTENDERS;

/** How long nobody may get the lock after a fault, in milliseconds. */
const STUCK = 30_000;

/** Writes are on disk before they are acknowledged, so that no lock is lost by a restart. */
const ARGS: Partial<Record<ServerName, readonly string[]>> = {
  etcd: QUICK_ETCD.etcd,
  redis: DURABLE_REDIS,
  redlock: DURABLE_REDIS,
};

/** Injects each fault into the holder of a lock, or into its server, and counts what the resource has lost. */
export async function tryLock(name: ContestantName, options: TrialOptions): Promise<Trial> {
  const { faults, rounds, ttl, onProgress } = options;
  const contestant: Contestant = CONTESTANTS[name];
  const args = ARGS[contestant.server] ?? [];
  await using server = await startServer(contestant.server, { onProgress, args });
  await contestant.prepare?.(server.url);
  await using contenders = await Contenders.start({ name, server, ttl });
  const outcomes: Outcome[] = [];
  for (const fault of faults) {
    contenders.reset();
    for (let round = 1; round <= rounds; round += 1) {
      onProgress(`${name}: ${fault}, ${round} of ${rounds}`);
      await contenders.meet(FAULTS[fault], server.nodes[round % server.nodes.length]);
    }
    outcomes.push({ fault, rounds, ...contenders.counts });
  }
  return {
    lock: name,
    package: contestant.package ?? "this package",
    usage: contestant.usage,
    server: server.version,
    outcomes,
  };
}

interface Contender {
  readonly child: ChildProcess;
  readonly wires: readonly TcpProxy[];
}

interface ContendersOptions {
  readonly name: ContestantName;
  readonly server: Server;
  readonly ttl: number;
}

/** The processes that contend for a lock, each with connections of its own. Each one is replaced when it ends. */
class Contenders implements AsyncDisposable {
  readonly #options: ContendersOptions;
  readonly #register: Register;

  /** By process id. */
  readonly #running = new Map<number, Contender>();
  #crashed = 0;
  #stuck = 0;
  #isEnding = false;

  private constructor(options: ContendersOptions, register: Register) {
    this.#options = options;
    this.#register = register;
  }

  static async start(options: ContendersOptions): Promise<Contenders> {
    const contenders = new Contenders(options, await Register.open());
    for (let i = 0; i < CONTENDERS; i += 1) await contenders.#add();
    await until(() => contenders.#register.counts.turns > 0);
    return contenders;
  }

  get counts() {
    const { counts, longestPause } = this.#register;
    return {
      ...counts,
      crashed: this.#crashed,
      stuck: this.#stuck,
      longestPause: Math.round(longestPause),
    };
  }

  reset(): void {
    this.#register.reset();
    this.#crashed = 0;
    this.#stuck = 0;
  }

  /** Injects a fault into the next holder, and waits until the lock has gone round again. */
  async meet({ at, work, lasts, begin, end }: Fault, node: ServerNode | undefined): Promise<void> {
    const { ttl } = this.#options;
    let victim: Victim | undefined;
    const { pid, holder } = await this.#register.ambush({
      at,
      work: work * ttl,
      begin: (met) => {
        const contender = this.#running.get(met);
        if (!contender || !node) return;
        victim = { ...contender, node };
        begin(victim);
      },
    });
    await sleep(lasts * ttl);
    if (victim) await end?.(victim);
    const { turns } = this.#register.counts;
    const hasEnded = () => !this.#register.isWorking(holder) || !this.#running.has(pid);
    const goesOn = () => hasEnded() && this.#register.counts.turns >= turns + TURNS_AFTER;
    await until(goesOn, STUCK).catch(() => this.#startAnew());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isEnding = true;
    for (const { child } of this.#running.values()) child.kill("SIGKILL");
    await until(() => this.#running.size === 0);
    this.#register.close();
  }

  async #startAnew(): Promise<void> {
    this.#stuck += 1;
    for (const { child } of this.#running.values()) child.kill("SIGKILL");
    const { turns } = this.#register.counts;
    await until(() => this.#register.counts.turns > turns);
  }

  async #add(): Promise<void> {
    const { name, server, ttl } = this.#options;
    const { url, wires } = await wiresTo(server);
    const nodes = wires.map(({ port }) => `127.0.0.1:${port}`);
    const options = JSON.stringify({ url, nodes, ttl } satisfies LockOptions);
    const args = [CONTENDER, name, options, this.#register.url];
    const child = tracked(spawn(process.execPath, args, { stdio: "ignore" }));
    const pid = child.pid as number;
    this.#running.set(pid, { child, wires });
    child.once("exit", async (_, signal) => {
      this.#running.delete(pid);
      if (signal === null) this.#crashed += 1;
      await Promise.all(wires.map((wire) => wire.close()));
      if (!this.#isEnding) await this.#add();
    });
  }
}
