import { ask, type JsonServer, serveJson } from "../support/json-server.ts";
import { Ambush, type Met } from "./ambush.ts";

/** A message of a contender. `holder` is unique for each time that the lock is taken. */
export type Message =
  | {
      readonly type: "read";
      readonly pid: number;
      readonly holder: string;
      readonly fence?: string;
    }
  /** Sent right before the write: what the lock itself says. The write follows if it is held. */
  | {
      readonly type: "check";
      readonly pid: number;
      readonly holder: string;
      readonly isHeld: boolean;
    }
  | {
      readonly type: "write";
      readonly pid: number;
      readonly holder: string;
      readonly value: number;
      readonly fence?: string;
    };

export interface Answer {
  /** The value that was read. Undefined if the fence was refused. */
  readonly value?: number;

  /** How long the holder works before its write, in milliseconds. */
  readonly work?: number;
}

export interface Counts {
  /** How often the register was read under the lock. */
  readonly turns: number;

  /** Writes that were accepted although another holder had written since the read: an update is lost. */
  readonly lost: number;

  /** Reads and writes with a fence below the latest. */
  readonly refused: number;

  /** Holders whose own lock told them in time that it is not held any more. */
  readonly gaveUp: number;
}

/** How long a holder works when no fault is under way, in milliseconds. */
const WORK = 20;

const NONE: Counts = { turns: 0, lost: 0, refused: 0, gaveUp: 0 };

/**
 * The resource behind a lock: a number that each holder reads and writes back plus one. It refuses low fences if it is sent
 * any, and accepts every other write.
 */
export class Register {
  counts = NONE;
  readonly ambush = new Ambush();
  #server: JsonServer | undefined;
  #value = 0;
  #fence = "";
  #readAt = performance.now();
  #longestPause = 0;

  /** The holders between their read and the end of their turn. */
  readonly #working = new Set<string>();

  static async open(): Promise<Register> {
    const register = new Register();
    register.#server = await serveJson((message: Message) => register.#handle(message));
    return register;
  }

  get url(): string {
    return this.#server?.url ?? "";
  }

  /** The longest time between two reads, in milliseconds, the time since the last one included. */
  get longestPause(): number {
    return Math.max(this.#longestPause, performance.now() - this.#readAt);
  }

  isWorking(holder: string): boolean {
    return this.#working.has(holder);
  }

  /** Begins a new count. */
  reset(): void {
    this.counts = NONE;
    this.#longestPause = 0;
    this.#readAt = performance.now();
  }

  close(): void {
    this.#server?.close();
  }

  #handle(message: Message): Answer {
    if (message.type === "read") return this.#read(message);
    if (message.type === "write") return this.#write(message);
    if (message.isHeld) {
      this.ambush.reach("check", metOf(message));
    } else {
      this.#working.delete(message.holder);
      this.#count("gaveUp");
    }
    return {};
  }

  #read(message: Message & { type: "read" }): Answer {
    if (this.#isRefused(message.fence, (latest, fence) => fence <= latest)) return {};
    this.#fence = message.fence ?? "";
    this.#count("turns");
    this.#longestPause = this.longestPause;
    this.#readAt = performance.now();
    this.#working.add(message.holder);
    return { value: this.#value, work: this.ambush.reach("read", metOf(message))?.work ?? WORK };
  }

  #write({ holder, value, fence }: Message & { type: "write" }): Answer {
    this.#working.delete(holder);
    if (this.#isRefused(fence, (latest, own) => own !== latest)) return {};
    if (value !== this.#value + 1) this.#count("lost");
    this.#value = value;
    return {};
  }

  #isRefused(fence: string | undefined, isLate: (latest: string, fence: string) => boolean) {
    if (fence === undefined || !isLate(this.#fence, fence)) return false;
    this.#count("refused");
    return true;
  }

  #count(what: keyof Counts): void {
    this.counts = { ...this.counts, [what]: this.counts[what] + 1 };
  }
}

function metOf({ pid, holder }: Message): Met {
  return { pid, what: holder };
}

export function send(register: string, message: Message): Promise<Answer> {
  return ask(register, message);
}
