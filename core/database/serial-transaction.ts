import { SerialCalls } from "./serial-calls.ts";
import type { Transaction } from "./sql.ts";

/** A transaction for a body that may call it concurrently, late, or after a failure. */
export interface SerialTransaction {
  readonly tx: Transaction;

  /** The error of the first call that failed. Undefined without one. */
  failure(): unknown;

  /** Waits for the calls that the body did not await, and refuses further ones. */
  end(): Promise<void>;
}

/**
 * Runs the calls of a transaction one after the other, and refuses calls after its commit, its first failure and its
 * end: the database would run those outside of the transaction and commit them alone.
 */
export function serialTransaction(
  address: string,
  { batch, commit }: Transaction,
): SerialTransaction {
  const calls = new SerialCalls(address);
  return {
    tx: {
      batch: (statements) => calls.run(() => batch(statements)),
      commit: (statements) => calls.finish(() => commit(statements)),
    },
    failure: () => calls.failure,
    end: () => calls.end(),
  };
}
