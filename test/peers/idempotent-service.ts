/** A service that executes each operation once, as the package's documentation says. */
export interface IdempotentService {
  /** Resolves to the receipt of the execution. Rejects if another process executes the operation. */
  deliver(operation: string): Promise<string>;
}

/** The work of one execution. */
export interface Execution {
  /** Tells the ledger of the begin, works, and has the effect at the ledger. Resolves to its receipt. */
  charge(operation: string, fence?: string): Promise<string>;

  /** The same with an effect that `write` writes into a transaction. */
  chargeWithin(operation: string, write: (receipt: string) => Promise<void>): Promise<string>;
}

export interface ServiceOptions {
  /** The URL of the server. */
  readonly url: string;

  /** How long an execution may take, in milliseconds, until another process takes it over. */
  readonly ttl: number;

  /** The name of the process, also after it is started again. */
  readonly executor: string;
}
