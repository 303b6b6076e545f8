import { ask, type JsonServer, serveJson } from "../support/json-server.ts";
import { Ambush } from "./ambush.ts";

/** A message of an execution. */
export type Message = {
  readonly pid: number;
  readonly operation: string;
  readonly fence?: string;
} & (
  | { readonly type: "begin" }
  | {
      readonly type: "effect";

      /** Names the execution. */
      readonly receipt: string;

      /** The effect is a row of a transaction, which is not committed yet. */
      readonly isTransacted?: boolean;
    }
);

export interface Answer {
  /** The fence is below the latest of the operation. */
  readonly isRefused?: boolean;

  /** How long the execution works before its effect, in milliseconds. */
  readonly work?: number;
}

/** How long an execution works when no fault is under way, in milliseconds. */
const WORK = 20;

/**
 * The service outside, such as a payment provider, where operations have their effects: it executes what it is asked.
 * It refuses low fences if it is sent any.
 */
export class Ledger {
  readonly ambush = new Ambush();
  #server: JsonServer | undefined;
  readonly #effects = new Map<string, number>();
  readonly #fences = new Map<string, string>();

  static async open(): Promise<Ledger> {
    const ledger = new Ledger();
    ledger.#server = await serveJson((message: Message) => ledger.#handle(message));
    return ledger;
  }

  get url(): string {
    return this.#server?.url ?? "";
  }

  effectsOf(operation: string): number {
    return this.#effects.get(operation) ?? 0;
  }

  close(): void {
    this.#server?.close();
  }

  #handle(message: Message): Answer {
    const { type, pid, operation, fence } = message;
    if (fence !== undefined) {
      if (fence < (this.#fences.get(operation) ?? "")) return { isRefused: true };
      this.#fences.set(operation, fence);
    }
    const isEffect = type === "effect" && !message.isTransacted;
    if (isEffect) this.#effects.set(operation, this.effectsOf(operation) + 1);
    return { work: this.ambush.reach(type, { pid, what: operation })?.work ?? WORK };
  }
}

/** Throws if the ledger refuses the fence. */
export async function send(ledger: string, message: Message): Promise<Answer> {
  const answer = await ask<Answer>(ledger, message);
  if (answer.isRefused) throw new Error(`the ledger refuses the fence ${message.fence}`);
  return answer;
}
