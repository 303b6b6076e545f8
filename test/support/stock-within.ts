import type { Transaction } from "../../core/database/sql.ts";
import type { Inventory, StockOperations } from "../../core/inventory/inventory.ts";
import { dynamodbInventory } from "../../core/stores/dynamodb/inventory/index.ts";
import { dynamodbJournal } from "../../core/stores/dynamodb/journal/index.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { anyTable } from "./dynamodb-under-test.ts";
import type { JournalUnderTest } from "./journal-under-test.ts";
import { record, running } from "./runs.ts";

/** A transaction as its body gets it. */
export type Opened = Pick<Transaction, "batch">;

/** Stock and its transactions, for the conformance suite. */
export interface StockWithin {
  readonly inventory: Inventory & { within(tx: Opened): StockOperations };

  /** Whether a transaction that conflicts is repeated: it makes no other one wait. */
  readonly isOptimistic: boolean;

  /** Whether the transactions are those of a SQL database. */
  readonly takesSql: boolean;

  /** Calls `body` in a transaction, which commits when the body has returned. */
  run<T>(body: (tx: Opened) => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

export async function sqlStockWithin(make: () => Promise<JournalUnderTest>): Promise<StockWithin> {
  const { openDatabase, isOptimistic = false, close } = await make();
  if (!openDatabase) throw new Error("this journal has no database");
  const database = openDatabase();
  return {
    inventory: sqlInventory(database),
    isOptimistic,
    takesSql: true,
    run: (body) =>
      database.transaction(async (tx) => {
        const answer = await body(tx);
        await tx.commit([]);
        return answer;
      }),
    async close() {
      await database.close();
      await close();
    },
  };
}

/** The transactions of steps. */
export async function dynamodbStockWithin(): Promise<StockWithin> {
  const dynamodb = (await anyTable()).open();
  const journal = dynamodbJournal(dynamodb);
  return {
    inventory: dynamodbInventory(dynamodb),
    isOptimistic: true,
    takesSql: false,
    async run<T>(body: (tx: Opened) => Promise<T>) {
      const run = await running(journal);
      let answer: T | undefined;
      const calling = async (tx: Opened) => {
        answer = await body(tx);
        return record("a", { kind: "tx" });
      };
      await journal.transact?.(run, { key: "a", fences: [] }, calling);
      return answer as T;
    },
    close: () => dynamodb.close(),
  };
}
