import type { Database, Transaction } from "../../core/database/sql.ts";
import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { pause } from "./until.ts";

const lost = () => new UnknownOutcomeError("the wire", "a request was executed");
const unread = () => new StoreUnavailableError("the wire", "the answer to a read was lost");

export interface Lossy {
  readonly database: Database;

  /** Whether the fault has been injected. */
  isOver(): boolean;

  /** Resolves when the delayed requests have arrived. */
  settled(): Promise<void>;
}

/** Loses a request or its answer at the n-th fault point. */
export function losing(database: Database, nth: number): Lossy {
  let passed = 0;
  const onPoint = (point: string) => {
    passed += 1;
    if (passed === nth) throw point.startsWith("read") ? unread() : lost();
  };
  return {
    database: injectFaults(database, onPoint),
    isOver: () => passed >= nth,
    settled: async () => {},
  };
}

/** Delays the n-th write by 30 ms. Its client gets an UnknownOutcomeError at once. */
export function delaying(database: Database, nth: number): Lossy {
  let passed = 0;
  const late: Promise<unknown>[] = [];
  const isNth = () => {
    passed += 1;
    return passed === nth;
  };
  const delayed: Database = {
    address: database.address,
    dialect: database.dialect,
    read: (statement, signal) => database.read(statement, signal),
    async batch(statements, signal) {
      if (!isNth()) return database.batch(statements, signal);
      late.push(pause(30).then(() => database.batch(statements).catch(() => {})));
      throw lost();
    },
    transaction<T>(body: (tx: Transaction) => Promise<T>, signal?: AbortSignal): Promise<T> {
      return new Promise<T>((resolve, reject) => {
        const whole = database.transaction((tx) => {
          const commit: Transaction["commit"] = async (statements) => {
            if (isNth()) {
              reject(lost());
              await pause(30);
            }
            return tx.commit(statements);
          };
          return body({ batch: (statements) => tx.batch(statements), commit });
        }, signal);
        late.push(whole.then(resolve, reject));
      });
    },
    close: () => database.close(),
    [Symbol.asyncDispose]: () => database.close(),
  };
  const settled = async () => {
    await Promise.allSettled(late);
  };
  return { database: delayed, isOver: () => passed >= nth, settled };
}
