import { race } from "../lock/abort.ts";
import { StoreUnavailableError, UnknownOutcomeError } from "../lock/errors.ts";
import { SerialCalls } from "./serial-calls.ts";
import { checkBatch, type Transaction } from "./sql.ts";

/** A transaction for a body that may call it concurrently, late, or after a failure. */
export interface SerialTransaction {
  /**
   * Runs the body until its end or the limit, waits for the calls that it did not await, and refuses further ones. A body
   * that goes on after the limit is left behind.
   */
  run<T>(body: (tx: Transaction) => Promise<T>): Promise<T>;

  /** The error of the first call that failed. Undefined without one. */
  failure(): unknown;
}

/**
 * Runs the calls of a transaction one after the other, and refuses calls after its commit, its first failure, its end and
 * its limit: the database would run those outside of the transaction and commit them alone.
 */
export function serialTransaction(
  address: string,
  { batch, commit }: Transaction,
  limit: AbortSignal,
): SerialTransaction {
  const calls = new SerialCalls(address);
  let isCommitted = false;
  const tooLong = () => {
    const problem = "the transaction took too long, or was aborted";
    return new StoreUnavailableError(address, problem, limit.reason);
  };
  const inTime = <T>(call: () => Promise<T>) => {
    if (limit.aborted) throw tooLong();
    return call();
  };
  const tx: Transaction = {
    async batch(statements) {
      checkBatch(statements);
      return calls.run(async () => inTime(() => batch(statements)));
    },
    async commit(statements) {
      checkBatch(statements);
      return calls.finish(async () => {
        const results = await inTime(() => commit(statements));
        isCommitted = true;
        return results;
      });
    },
  };
  return {
    failure: () => calls.failure,
    async run(body) {
      const [outcome] = await Promise.allSettled([race((async () => body(tx))(), limit)]);
      await calls.end();
      if (outcome.status === "fulfilled") return outcome.value;
      const { reason } = outcome;
      if (!limit.aborted || reason !== limit.reason) throw reason;
      if (calls.failure !== undefined) throw calls.failure;
      throw isCommitted
        ? new UnknownOutcomeError(address, "the body ended after its commit", reason)
        : tooLong();
    },
  };
}
