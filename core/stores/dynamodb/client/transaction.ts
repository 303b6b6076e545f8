import { SerialCalls } from "../../../database/serial-calls.ts";
import type { Transaction } from "../../../database/sql.ts";
import type { Millis } from "../../../lock/time.ts";
import type { TransactWrite, Written } from "./dynamodb.ts";

/** The answers to the writes of a transaction that was refused. */
export type Refusal = Pick<Written, "failed" | "items">;

/** Writes of a transaction that belong together. */
export interface Part {
  /** Called when the body has returned. */
  writes(): readonly TransactWrite[];

  /**
   * Called with the answers to these writes if the condition of one of them does not hold. Throws the error for the
   * caller; otherwise the body is repeated.
   */
  refused(answer: Refusal): void;
}

/** An attempt that was refused. */
export interface WriteAttempt {
  readonly span: Millis;
  readonly contested: ReadonlySet<string>;
}

/** Thrown inside a body, ends it: it has to be repeated. */
export const REPEAT = new Error("the step's body is repeated");

/**
 * A transaction of DynamoDB: what its body has added is written when the body has returned, all of it or nothing. The
 * body may be repeated, with a new object.
 */
export class ItemTransaction implements Pick<Transaction, "batch"> {
  readonly address: string;

  /** Aborts when the body has to end. */
  readonly signal: AbortSignal;

  /** The attempt before, if the body is repeated. */
  readonly lastAttempt: WriteAttempt | undefined;

  /** The skus whose stock others have changed during this attempt. */
  readonly contested = new Set<string>();
  readonly #parts = new Map<string, Part>();
  readonly #calls: SerialCalls;

  constructor(address: string, signal: AbortSignal, lastAttempt?: WriteAttempt) {
    this.address = address;
    this.signal = signal;
    this.lastAttempt = lastAttempt;
    this.#calls = new SerialCalls(address);
  }

  async batch(): Promise<never> {
    const cure = "use `inventory.within(tx)`, or `write(tx, item)` of the store";
    throw new TypeError(`${this.address} takes no SQL: ${cure}`);
  }

  /** Runs the calls one after the other, and none after the first failure. */
  inTurn<T>(call: () => Promise<T>): Promise<T> {
    return this.#calls.run(call);
  }

  /** Returns the part with this name, which is made once. */
  part<P extends Part>(name: string, make: () => P): P {
    const part = (this.#parts.get(name) as P | undefined) ?? make();
    this.#parts.set(name, part);
    return part;
  }

  /** The parts, in the order in which they were made. */
  get parts(): readonly Part[] {
    return [...this.#parts.values()];
  }

  get failure(): unknown {
    return this.#calls.failure;
  }

  end(): Promise<void> {
    return this.#calls.end();
  }
}

/** Returns the transaction of DynamoDB that a step's body has got. */
export function itemTransaction(tx: unknown): ItemTransaction {
  if (typeof tx === "object" && tx !== null && "inTurn" in tx) return tx as ItemTransaction;
  throw new TypeError("tx must be that of a step.tx whose journal is in DynamoDB");
}
