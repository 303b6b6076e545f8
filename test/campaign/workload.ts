import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { stockLock } from "../../core/inventory/inventory.ts";
import { MAIN } from "../support/cli.ts";
import { tracked } from "../support/running.ts";
import type { ContenderReport } from "./contender.ts";
import { now } from "./oracle.ts";

export interface WorkloadOptions {
  /** The store's URL. */
  readonly url: string;

  /** The oracle's URL. */
  readonly oracle: string;

  /** The skus that contenders work on, under their locks. */
  readonly skus: readonly string[];

  /** The ttl of locks, in milliseconds. */
  readonly ttl: number;
}

const CONTENDERS = 4;
const COMMANDS = 2;

const CONTENDER = fileURLToPath(new URL("./contender.ts", import.meta.url));
const COMMAND = fileURLToPath(new URL("./command.ts", import.meta.url));

/** Exit statuses of `lockstep lock`: done, busy, lost, store unavailable or outcome unknown. */
const EXPECTED_STATUSES = [0, 75, 76, 69];

/** The processes of a campaign: contenders and runs of `lockstep lock`. Each one is replaced when it ends. */
export class Workload {
  readonly contenders: ChildProcess[] = [];
  readonly commands: ChildProcess[] = [];

  /** Ended runs of `lockstep lock`, by exit status or signal. */
  readonly statuses: Record<string, number> = {};

  /** Failed calls of contenders, by call and code. */
  readonly errors: Record<string, number> = {};

  /** The outcome of each sale, by sku and operation id. */
  readonly sales = new Map<string, string>();
  readonly violations: string[] = [];
  readonly #options: WorkloadOptions;
  readonly #running = new Set<Promise<void>>();
  #isEnding = false;

  constructor(options: WorkloadOptions) {
    this.#options = options;
  }

  start(): void {
    for (let i = 0; i < CONTENDERS; i += 1) this.#repeat(() => this.#contend(i));
    for (let i = 0; i < COMMANDS; i += 1) this.#repeat(() => this.#runCommand(i));
  }

  /** Lets all processes finish their turn. Resolves when all of them have ended. */
  async end(): Promise<void> {
    this.#isEnding = true;
    for (const child of this.contenders) child.kill("SIGTERM");
    await Promise.all(this.#running);
  }

  kill(): void {
    this.#isEnding = true;
    for (const child of [...this.contenders, ...this.commands]) child.kill("SIGKILL");
  }

  #repeat(run: () => Promise<void>): void {
    const running = (async () => {
      while (!this.#isEnding) await run();
    })().finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  async #contend(at: number): Promise<void> {
    const { url, oracle, ttl, skus } = this.#options;
    const child = startNode([CONTENDER, url, oracle, String(ttl), ...skus]);
    this.contenders[at] = child;
    const stderr = text(child.stderr);
    for await (const line of createInterface({ input: child.stdout })) this.#record(line);
    // TERM ends a contender whose program does not run yet.
    await this.#checkExit("a contender", child, await stderr, [0, "SIGTERM"]);
  }

  async #runCommand(at: number): Promise<void> {
    const { url, oracle, ttl, skus } = this.#options;
    const sku = skus[Math.floor(Math.random() * skus.length)] as string;
    const lock = ["lock", stockLock(sku), "--store", url, "--ttl", `${ttl}ms`, "--wait", "10s"];
    const command = [process.execPath, COMMAND, oracle, now(), String(ttl)];
    const child = startNode([MAIN, ...lock, "--", ...command]);
    this.commands[at] = child;
    child.stdout.resume();
    const status = await this.#checkExit(
      "lockstep lock",
      child,
      await text(child.stderr),
      EXPECTED_STATUSES,
    );
    this.statuses[status] = (this.statuses[status] ?? 0) + 1;
  }

  #record(line: string): void {
    const report = JSON.parse(line) as ContenderReport;
    if ("sale" in report) {
      this.sales.set(report.sale, report.outcome);
    } else {
      const error = `${report.call}: ${report.error}`;
      this.errors[error] = (this.errors[error] ?? 0) + 1;
    }
  }

  /** Returns the exit status or signal. The nemesis kills with KILL; any other unexpected end is a violation. */
  async #checkExit(
    name: string,
    child: ChildProcess,
    stderr: string,
    expected: readonly (number | string)[],
  ): Promise<number | string> {
    if (child.exitCode === null && child.signalCode === null) {
      await new Promise((resolve) => child.once("exit", resolve));
    }
    const status = child.signalCode ?? child.exitCode ?? "";
    if (status !== "SIGKILL" && !expected.includes(status)) {
      this.violations.push(`${name} ended with ${status}: ${stderr.trim()}`);
    }
    return status;
  }
}

function startNode(args: readonly string[]) {
  return tracked(spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] }));
}
