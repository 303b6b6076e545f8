import type { Database, Transaction } from "../../core/database/sql.ts";
import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import { pointed } from "../../core/steps/points.ts";
import { pause } from "./until.ts";

const lost = () => new UnknownOutcomeError("the wire", "a request was carried out");
const unread = () => new StoreUnavailableError("the wire", "the answer to a read was lost");

export interface Lossy {
  readonly database: Database;

  /** Whether the loss has happened. */
  isOver(): boolean;

  /** Resolves when what is late has arrived. */
  settled(): Promise<void>;
}

/** Loses a request, or its answer, at the n-th point before or after a call. */
export function losing(database: Database, nth: number): Lossy {
  let passed = 0;
  const onPoint = (point: string) => {
    passed += 1;
    if (passed === nth) throw point.startsWith("read") ? unread() : lost();
  };
  return {
    database: pointed(database, onPoint),
    isOver: () => passed >= nth,
    settled: async () => {},
  };
}

/** The n-th request that changes something is given up by its client, and arrives 30 ms later. */
export function delaying(database: Database, nth: number): Lossy {
  let passed = 0;
  const late: Promise<unknown>[] = [];
  const isIt = () => {
    passed += 1;
    return passed === nth;
  };
  const around: Database = {
    address: database.address,
    dialect: database.dialect,
    read: (statement, signal) => database.read(statement, signal),
    async packet(statements, signal) {
      if (!isIt()) return database.packet(statements, signal);
      late.push(pause(30).then(() => database.packet(statements).catch(() => {})));
      throw lost();
    },
    transaction<T>(body: (tx: Transaction) => Promise<T>, signal?: AbortSignal): Promise<T> {
      return new Promise<T>((resolve, reject) => {
        const whole = database.transaction((tx) => {
          const commit: Transaction["commit"] = async (statements) => {
            if (isIt()) {
              reject(lost());
              await pause(30);
            }
            return tx.commit(statements);
          };
          return body({ packet: (statements) => tx.packet(statements), commit });
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
  return { database: around, isOver: () => passed >= nth, settled };
}
