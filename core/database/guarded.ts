import { StoreRefusedError } from "../lock/errors.ts";
import type { Result, Transaction } from "./sql.ts";

/** A transaction as its body gets it. */
export interface Guarded {
  readonly tx: Transaction;

  /** Why a call of it failed, if one did. */
  failure(): unknown;

  /** Waits for what the body has asked for without waiting for it, and takes nothing more. */
  end(): Promise<void>;
}

/**
 * A transaction that is over with its commit, with its first failure, and with its body: whatever came later
 * would run outside of it, and be committed alone. Its calls are made one after the other.
 */
export function guarded(address: string, { packet, commit }: Transaction): Guarded {
  let failure: unknown;
  let isOver = false;
  let last: Promise<unknown> = Promise.resolve();

  const inTurn = (call: () => Promise<readonly Result[]>): Promise<readonly Result[]> => {
    const answer = last.then(async () => {
      if (failure !== undefined) throw failure;
      if (isOver) throw new StoreRefusedError(address, "this transaction is over");
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
      packet: (statements) => inTurn(() => packet(statements)),
      commit: (statements) =>
        inTurn(async () => {
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
