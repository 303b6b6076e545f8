import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { stockLock } from "../../core/inventory/inventory.ts";
import { hasEnded } from "../../infra/servers/server.ts";
import { Random } from "../simulation/random.ts";
import { MAIN } from "../support/cli.ts";
import { tracked } from "../support/running.ts";
import type { ContenderOptions } from "./contender.ts";
import type { History, HistoryEvent } from "./history.ts";
import type { CampaignViolation } from "./judge.ts";

export interface WorkloadOptions {
  /** The store's URL. */
  readonly url: string;

  /** The oracle's URL. */
  readonly oracle: string;
  readonly history: History;
  readonly seed: number;

  /** The skus of slow contenders and of `lockstep lock`, and of fast contenders. */
  readonly slowSkus: readonly string[];
  readonly fastSkus: readonly string[];

  /** The ttl of locks, in milliseconds. */
  readonly ttl: number;

  readonly hasStock: boolean;

  /** Variables added to the environment of the contender at a place. */
  readonly env: (at: number) => NodeJS.ProcessEnv;
}

/** A process of the workload. */
export interface Worker {
  /** Its clients have names that begin with it. */
  readonly name: string;
  readonly child: ChildProcess;
}

type Pace = Pick<ContenderOptions, "lanes" | "units" | "pause" | "isSlow">;

/** Waits and holds locks for as long as they last. */
const SLOW: Pace = { lanes: 1, units: 1, pause: 1, isSlow: true };

/** Makes many calls: its sales have up to 80 units, each with an operation id of its own. */
const FAST: Pace = { lanes: 4, units: 80, pause: 100, isSlow: false };

/** Makes as many calls on a store without stock. */
const FAST_LOCKS: Pace = { lanes: 16, units: 1, pause: 5, isSlow: false };

const SLOW_CONTENDERS = 4;
const FAST_CONTENDERS = 2;
export const CONTENDERS = SLOW_CONTENDERS + FAST_CONTENDERS;
const COMMANDS = 2;

/** Between two runs of `lockstep lock`, in milliseconds: the start of a process takes as much of the machine as many calls. */
const COMMAND_PAUSE = 2_000;

const CONTENDER = fileURLToPath(new URL("./contender.ts", import.meta.url));
const COMMAND = fileURLToPath(new URL("./command.ts", import.meta.url));

/** Exit statuses of `lockstep lock`: done, busy, lost, store unavailable or outcome unknown. */
const EXPECTED_STATUSES = [0, 75, 76, 69];
const BUSY = 75;

/** The processes of a campaign: contenders and runs of `lockstep lock`. Each one is replaced when it ends. */
export class Workload {
  readonly contenders: Worker[] = [];
  readonly commands: Worker[] = [];

  /** Ended runs of `lockstep lock`, by exit status or signal. */
  readonly statuses: Record<string, number> = {};
  readonly violations: CampaignViolation[] = [];
  readonly #options: WorkloadOptions;
  readonly #running = new Set<Promise<void>>();
  #started = 0;
  #isEnding = false;

  constructor(options: WorkloadOptions) {
    this.#options = options;
  }

  start(): void {
    for (let at = 0; at < CONTENDERS; at += 1) this.#repeat(() => this.#contend(at));
    for (let at = 0; at < COMMANDS; at += 1) {
      this.#repeat(async () => {
        await this.#runCommand(at);
        await sleep(COMMAND_PAUSE);
      });
    }
  }

  /** Lets all processes finish their turn. Resolves when all of them have ended. */
  async end(): Promise<void> {
    this.#isEnding = true;
    for (const { child } of this.contenders) child.kill("SIGTERM");
    await Promise.all(this.#running);
  }

  kill(): void {
    this.#isEnding = true;
    for (const { child } of [...this.contenders, ...this.commands]) child.kill("SIGKILL");
  }

  #repeat(run: () => Promise<void>): void {
    const running = (async () => {
      while (!this.#isEnding) await run();
    })().finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  async #contend(at: number): Promise<void> {
    const { url, oracle, ttl, seed, slowSkus, fastSkus, hasStock } = this.#options;
    const fast = hasStock ? FAST : FAST_LOCKS;
    const pace = at < SLOW_CONTENDERS ? SLOW : fast;
    const name = `contender-${this.#number()}`;
    const options: ContenderOptions = {
      ...{ url, oracle, ttl, ...pace, process: name, seed: [seed, this.#started] },
      skus: pace.isSlow ? slowSkus : fastSkus,
    };
    const child = startNode([CONTENDER, JSON.stringify(options)], this.#options.env(at));
    this.contenders[at] = { name, child };
    // TERM ends a contender whose program does not run yet.
    await this.#finish({ name, child }, "a contender", [0, "SIGTERM"]);
  }

  async #runCommand(at: number): Promise<void> {
    const { url, oracle, ttl, seed, slowSkus, history } = this.#options;
    const name = `command-${this.#number()}`;
    const random = new Random(seed, this.#started);
    const lock = stockLock(random.pick(slowSkus));
    const held = String(Math.floor(random.float() * ttl));
    const options = ["--store", url, "--ttl", `${ttl}ms`, "--wait", "10s"];
    const command = [process.execPath, COMMAND, oracle, name, held];
    history.addNow({ client: name, type: "invoke", operation: "acquire", name: lock });
    const child = startNode([MAIN, "lock", lock, ...options, "--", ...command]);
    this.commands[at] = { name, child };
    const status = await this.#finish({ name, child }, "lockstep lock", EXPECTED_STATUSES);
    this.statuses[status] = (this.statuses[status] ?? 0) + 1;
  }

  /** Numbers the processes. */
  #number(): number {
    this.#started += 1;
    return this.#started;
  }

  /** Records the history of a process until it has ended, and returns its exit status or signal. */
  async #finish(
    { name, child }: Worker & { readonly child: ReturnType<typeof startNode> },
    kind: string,
    expected: readonly (number | string)[],
  ): Promise<number | string> {
    const { history } = this.#options;
    const stderr = text(child.stderr);
    for await (const line of createInterface({ input: child.stdout })) {
      // A process that was killed may have printed the beginning of a line.
      if (line.endsWith("}")) history.add(JSON.parse(line) as HistoryEvent);
    }
    if (!hasEnded(child)) {
      await new Promise((resolve) => child.once("exit", resolve));
    }
    const status = child.signalCode ?? child.exitCode ?? "";
    history.end(name, String(status), status === BUSY ? "fail" : "unknown");
    // The nemesis kills with KILL.
    if (status !== "SIGKILL" && !expected.includes(status)) {
      const output = (await stderr).trim();
      this.violations.push(`expected ends: ${kind} ended with ${status}: ${output}`);
    }
    return status;
  }
}

function startNode(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  return tracked(
    spawn(process.execPath, args, {
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    }),
  );
}
