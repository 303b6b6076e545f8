import { StoreRefusedError } from "../lock/errors.ts";
import type { SqlResult, Transaction } from "./sql.ts";

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
  let failure: unknown;
  let isOver = false;
  let last: Promise<unknown> = Promise.resolve();

  const enqueue = (call: () => Promise<readonly SqlResult[]>): Promise<readonly SqlResult[]> => {
    const answer = last.then(async () => {
      if (failure !== undefined) throw failure;
      if (isOver) {
        const problem = "this transaction has ended; make all its calls before its body returns";
        throw new StoreRefusedError(address, problem);
      }
      try {
        return await call();
      } catch (error) {
        failure = error;
        throw error;
      }
    });
    last = answer.catch(() => {});
    return answer;
  };

  return {
    tx: {
      batch: (statements) => enqueue(() => batch(statements)),
      commit: (statements) =>
        enqueue(async () => {
          const results = await commit(statements);
          isOver = true;
          return results;
        }),
    },
    failure: () => failure,
    async end() {
      await last;
      isOver = true;
    },
  };
}
