import type { WriteStream } from "node:fs";
import type { CallEvent } from "../models/replay.ts";

/**
 * What clients do to locks and resources. `claim` and `write` are of the oracle's register, `sale` and `run` of the store's
 * stock. `hold`: the client asks its lock whether it is held. `clock`: a process sees a step of its wall clock.
 */
export type Operation =
  | "acquire"
  | "hold"
  | "claim"
  | "write"
  | "sale"
  | "run"
  | "release"
  | "inspect"
  | "clock";

/**
 * One event of a history, as each line of its file has it; the terms are Jepsen's. Times are microseconds of
 * CLOCK_MONOTONIC, which all processes of a machine share. A client is a sequence of calls in one process; "nemesis" is that of the faults, whose
 * names are the operations. A sale of `units` has the operation ids `ID/NUMBER`.
 */
export interface HistoryEvent extends CallEvent {
  readonly operation: Operation | (string & {});

  /** Whether the units that a sale has left are those of an earlier call. */
  readonly replayed?: boolean;

  /** The wall clock of the store at an inspection, in microseconds since 1970. Undefined for a store that has none to be read. */
  readonly serverTime?: number;
}

/** Returns the present time of a history. */
export function now(): number {
  return Number(process.hrtime.bigint() / 1_000n);
}

/** Returns by how many milliseconds the wall clock of this process is ahead of the times of a history. */
export function wallClock(): number {
  return Math.round(Date.now() - now() / 1_000);
}

/** Prints an event of this process. The line is out before the call goes on: a pipe is written at once. */
export function record(event: Omit<HistoryEvent, "time"> & { readonly time?: number }): void {
  process.stdout.write(`${JSON.stringify({ time: now(), ...event })}\n`);
}

/** The events of all processes of a campaign, in order of their arrival. */
export class History {
  readonly events: HistoryEvent[] = [];

  /** The ended calls. Each unit of a sale counts. */
  operations = 0;
  unknown = 0;
  readonly #file: WriteStream | undefined;

  /** The calls under way, by client and operation. */
  readonly #open = new Map<string, HistoryEvent>();

  /** The clients that have a lock. */
  readonly #holders = new Set<string>();

  /** Each event is also a line of the file. */
  constructor(file?: WriteStream) {
    this.#file = file;
  }

  add(event: HistoryEvent): void {
    this.events.push(event);
    this.#file?.write(`${JSON.stringify(event)}\n`);
    const { client, type, operation, units = 1 } = event;
    const call = `${client} ${operation}`;
    if (operation === "acquire" && type === "ok") this.#holders.add(client);
    if (operation === "release" || operation === "hold") {
      if (type !== "ok" || operation === "release") this.#holders.delete(client);
    }
    if (type === "invoke") {
      this.#open.set(call, event);
      return;
    }
    if (!this.#open.delete(call)) return;
    this.operations += units;
    if (type === "unknown") this.unknown += units;
  }

  addNow(event: Omit<HistoryEvent, "time">): void {
    this.add({ time: now(), ...event });
  }

  /** Whether a client of this process has a lock, as far as its events tell. */
  isHolder(process: string): boolean {
    return [...this.#holders].some((client) => isOf(client, process));
  }

  /** Ends the calls of a process that has ended. */
  end(process: string, code: string, type: "fail" | "unknown" = "unknown"): void {
    for (const { time: _, ...event } of [...this.#open.values()]) {
      if (isOf(event.client, process)) this.addNow({ ...event, type, code });
    }
    for (const client of this.#holders) if (isOf(client, process)) this.#holders.delete(client);
  }
}

function isOf(client: string, process: string): boolean {
  return client === process || client.startsWith(`${process}.`);
}
