import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { stockLock } from "../../core/inventory/inventory.ts";
import { MAIN } from "../support/cli.ts";
import { tracked } from "../support/running.ts";
import type { Report } from "./contender.ts";
import { now } from "./oracle.ts";

export interface CrewOptions {
  /** The store's URL. */
  readonly url: string;

  /** The oracle's URL. */
  readonly oracle: string;

  /** Contenders work on these, under their locks. */
  readonly skus: readonly string[];

  /** Milliseconds. */
  readonly ttl: number;
}

const CONTENDERS = 4;
const COMMANDS = 2;

const CONTENDER = fileURLToPath(new URL("./contender.ts", import.meta.url));
const COMMAND = fileURLToPath(new URL("./command.ts", import.meta.url));

/** Statuses of `lockstep lock`: done, busy, lost, store unavailable or not known. */
const EXPECTED_STATUSES = [0, 75, 76, 69];

/** The processes of a campaign: contenders, and runs of `lockstep lock`. Each is started again when it has ended. */
export class Crew {
  readonly contenders: ChildProcess[] = [];
  readonly commands: ChildProcess[] = [];

  /** How many runs of `lockstep lock` have ended, by exit status or signal. */
  readonly statuses: Record<string, number> = {};

  /** Failed calls of contenders, by call and code. */
  readonly errors: Record<string, number> = {};

  /** The outcome of each sale, by sku and operation id. */
  readonly sales = new Map<string, string>();
  readonly violations: string[] = [];
  readonly #options: CrewOptions;
  readonly #running = new Set<Promise<void>>();
  #isOver = false;

  constructor(options: CrewOptions) {
    this.#options = options;
  }

  start(): void {
    for (let i = 0; i < CONTENDERS; i += 1) this.#keep(() => this.#contend(i));
    for (let i = 0; i < COMMANDS; i += 1) this.#keep(() => this.#runCommand(i));
  }

  /** Lets everybody finish what they are at. Resolves when all have ended by themselves. */
  async end(): Promise<void> {
    this.#isOver = true;
    for (const child of this.contenders) child.kill("SIGTERM");
    await Promise.all(this.#running);
  }

  kill(): void {
    this.#isOver = true;
    for (const child of [...this.contenders, ...this.commands]) child.kill("SIGKILL");
  }

  #keep(run: () => Promise<void>): void {
    const running = (async () => {
      while (!this.#isOver) await run();
    })().finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  async #contend(at: number): Promise<void> {
    const { url, oracle, ttl, skus } = this.#options;
    const child = startNode([CONTENDER, url, oracle, String(ttl), ...skus]);
    this.contenders[at] = child;
    const said = text(child.stderr);
    for await (const line of createInterface({ input: child.stdout })) this.#note(line);
    await this.#judgeEnd("a contender", child, await said, [0]);
  }

  async #runCommand(at: number): Promise<void> {
    const { url, oracle, ttl, skus } = this.#options;
    const sku = skus[Math.floor(Math.random() * skus.length)] as string;
    const lock = ["lock", stockLock(sku), "--store", url, "--ttl", `${ttl}ms`, "--wait", "10s"];
    const command = [process.execPath, COMMAND, oracle, now(), String(ttl)];
    const child = startNode([MAIN, ...lock, "--", ...command]);
    this.commands[at] = child;
    child.stdout.resume();
    const status = await this.#judgeEnd(
      "lockstep lock",
      child,
      await text(child.stderr),
      EXPECTED_STATUSES,
    );
    this.statuses[status] = (this.statuses[status] ?? 0) + 1;
  }

  #note(line: string): void {
    const report = JSON.parse(line) as Report;
    if ("sale" in report) {
      this.sales.set(report.sale, report.outcome);
    } else {
      const what = `${report.call}: ${report.error}`;
      this.errors[what] = (this.errors[what] ?? 0) + 1;
    }
  }

  /** The exit status or signal. KILL is the nemesis's; other ends than the expected ones are violations. */
  async #judgeEnd(
    who: string,
    child: ChildProcess,
    said: string,
    expected: readonly number[],
  ): Promise<number | string> {
    if (child.exitCode === null && child.signalCode === null) {
      await new Promise((resolve) => child.once("exit", resolve));
    }
    const status = child.signalCode ?? child.exitCode ?? "";
    if (status !== "SIGKILL" && !expected.includes(status as number)) {
      this.violations.push(`${who} ended with ${status}: ${said.trim()}`);
    }
    return status;
  }
}

function startNode(args: readonly string[]) {
  return tracked(spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] }));
}
