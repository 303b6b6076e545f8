import type { SqlResult } from "../../database/sql.ts";
import { sha256 } from "../../lock/sha256.ts";
import { sqliteDialect, withTime } from "../sqlite/dialect.ts";
import { isSqliteMessage } from "./errors.ts";
import { type Query, toResult } from "./query.ts";

/** One call of a Durable Object: queries that are executed together or not at all. */
export interface ObjectCall {
  readonly queries: readonly Query[];

  /** Undefined for a call outside of a transaction, which is committed. */
  readonly transaction?: TransactionCall;
}

/**
 * A call of a transaction of several calls. The object keeps nothing between them: each call executes all queries of the
 * transaction, and all calls but the last one are rolled back.
 */
export interface TransactionCall {
  /** The queries of the earlier calls. */
  readonly before: readonly Query[];

  /** The digest of their results. A call with other results is refused as a conflict. */
  readonly seen: string;

  /** The object's time at the first call, which all queries use, so that a repetition has the same results. */
  readonly at: string | undefined;

  readonly commits: boolean;
}

export type ObjectAnswer =
  | {
      readonly kind: "done";
      readonly results: readonly SqlResult[];

      /** In a transaction: the queries that the next call repeats. */
      readonly seen: string;
      readonly at: string | undefined;
    }
  | { readonly kind: "conflict" }
  /** SQLite refused a query. Nothing has happened. */
  | { readonly kind: "failed"; readonly message: string };

/** The part of a Durable Object's storage that Lockstep uses. */
export interface ObjectStorage {
  readonly sql: {
    exec(
      query: string,
      ...values: unknown[]
    ): { readonly columnNames: string[]; toArray(): Record<string, unknown>[] };
  };
  transactionSync<T>(body: () => T): T;
}

/** Executes a call in a Durable Object, in one transaction. */
export function answerCall(
  storage: ObjectStorage,
  { queries, transaction }: ObjectCall,
): ObjectAnswer {
  const run = (some: readonly Query[], at: string | undefined) =>
    some.map((query) => execute(storage, query, at));
  let isRepeating = false;
  try {
    return storage.transactionSync((): ObjectAnswer => {
      if (!transaction)
        return { kind: "done", results: run(queries, undefined), seen: "", at: undefined };
      const { before, seen, commits, at = readClock(storage) } = transaction;
      isRepeating = true;
      const earlier = run(before, at);
      isRepeating = false;
      if (before.length > 0 && digestOf(earlier) !== seen) throw new Rollback({ kind: "conflict" });
      const results = run(queries, at);
      const answer = {
        kind: "done",
        results,
        seen: digestOf([...earlier, ...results]),
        at,
      } as const;
      if (!commits) throw new Rollback(answer);
      return answer;
    });
  } catch (error) {
    if (error instanceof Rollback) return error.answer;
    const { message } = error as Error;
    if (!isSqliteMessage(message)) throw error;
    // A query that has succeeded before fails because of what others have changed.
    return isRepeating ? { kind: "conflict" } : { kind: "failed", message };
  }
}

/** Ends a transaction without a commit. */
class Rollback extends Error {
  readonly answer: ObjectAnswer;

  constructor(answer: ObjectAnswer) {
    super("the transaction is rolled back");
    this.answer = answer;
  }
}

function execute(
  { sql }: ObjectStorage,
  { text, values }: Query,
  at: string | undefined,
): SqlResult {
  const timed = at === undefined ? text : withTime(text, at);
  const cursor = sql.exec(timed, ...(values === undefined ? [] : [values]));
  const rows = cursor.toArray();
  if (cursor.columnNames.length > 0) return toResult(rows, rows.length);
  const [counted] = sql.exec("SELECT changes() AS affected").toArray();
  return toResult([], Number(counted?.affected));
}

function readClock({ sql }: ObjectStorage): string {
  const [row] = sql.exec(`SELECT ${sqliteDialect.now.texts[0]} AS now`).toArray();
  return String(row?.now);
}

function digestOf(results: readonly SqlResult[]): string {
  return String(sha256(JSON.stringify(results)));
}
