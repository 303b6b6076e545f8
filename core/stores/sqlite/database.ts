import { AsyncLocalStorage } from "node:async_hooks";
import { dirname, resolve } from "node:path";
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite";
import { Semaphore } from "../../database/semaphore.ts";
import { serialTransaction } from "../../database/serial-transaction.ts";
import {
  type ConnectionLane,
  checkBatch,
  checkRead,
  checkTransaction,
  type Database,
  type Row,
  type Sql,
  type SqlResult,
  sql,
  type Transaction,
} from "../../database/sql.ts";
import { deadline, follow, noAnswer, sleep } from "../../lock/abort.ts";
import { StoreClosedError, StoreRefusedError, StoreUnavailableError } from "../../lock/errors.ts";
import { type Backoff, backoff, retry } from "../../lock/retry.ts";
import { LONGEST_CALL } from "../../lock/time.ts";
import { sqliteDialect, withTime } from "./dialect.ts";
import { BusyError, commitError, uncommittedError } from "./errors.ts";

// An import of node:fs would load Node's streams.
const { existsSync, mkdirSync, statSync } = process.getBuiltinModule("node:fs");

/**
 * Opens a file that several processes of one machine share, or ":memory:". The first call makes the file, and its folder
 * if the parent folder exists.
 */
export function sqliteDatabase(file: string): Database {
  return new Sqlite(file);
}

/** The most prepared statements that are kept. Lists of different lengths are different statements. */
const MOST_STATEMENTS = 200;

interface Prepared {
  readonly statement: StatementSync;

  /** Whether it reads. */
  readonly hasRows: boolean;
}

/** A process holds the file for one transaction, which takes a few milliseconds. */
const REPEAT: Backoff = { base: 1, factor: 2, max: 20, jitter: "full" };

class Sqlite implements Database {
  readonly address: string;
  readonly dialect = sqliteDialect;
  readonly #file: string;
  readonly #isInMemory: boolean;
  readonly #statements = new Map<string, Prepared>();
  #db: DatabaseSync | undefined;
  #closed = false;

  /** The opened file's absolute path and inode: another file may take its name, and the process may change folders. */
  #path = "";
  #identity: string | undefined;

  /** One connection: an open transaction excludes all other calls. */
  readonly #connection = new Semaphore(1);

  /** Whether a transaction with a body is open: no other process can write. */
  #isTransactionOpen = false;

  /** The renewals inside the open transaction, with the time of their first execution. */
  readonly #renewals: Sql[] = [];

  /** The transaction whose body makes the call. */
  readonly #currentTransaction = new AsyncLocalStorage<{ open: boolean }>();

  constructor(file: string) {
    this.#file = file;
    this.#isInMemory = file === ":memory:";
    this.address = `sqlite:${file}`;
  }

  async batch(
    statements: readonly Sql[],
    signal?: AbortSignal,
    lane?: ConnectionLane,
  ): Promise<readonly SqlResult[]> {
    checkBatch(statements, signal);
    if (lane === "renewals" && this.#isTransactionOpen) return this.#join(statements);
    return this.#exclusively(signal, (db) => {
      if (statements.length === 1) return this.#commit(() => this.#run(db, statements));
      db.exec("BEGIN IMMEDIATE");
      const results = this.#run(db, statements);
      this.#commit(() => db.exec("COMMIT"));
      return results;
    });
  }

  async read(statement: Sql, signal?: AbortSignal): Promise<readonly Row[]> {
    checkRead(statement, signal);
    const [result] = await this.#exclusively(signal, (db) => this.#run(db, [statement]));
    return result?.rows ?? [];
  }

  async transaction<T>(body: (tx: Transaction) => Promise<T>, signal?: AbortSignal): Promise<T> {
    checkTransaction(body, signal);
    return this.#bounded(signal, (limit) =>
      this.#inQueue(limit, async () => {
        await this.#retryWhileBusy(limit, (db) => this.#begin(db));
        const transaction = { open: true };
        const { run } = serialTransaction(this.address, this.#calls, limit);
        const rollback = () => {
          this.#isTransactionOpen = false;
          this.#rollback();
        };
        // Other processes do not wait for the body.
        limit.addEventListener("abort", rollback, { once: true });
        try {
          return await run((tx) => this.#currentTransaction.run(transaction, () => body(tx)));
        } finally {
          limit.removeEventListener("abort", rollback);
          transaction.open = false;
          rollback();
        }
      }),
    );
  }

  /** Waits for the open transaction without a limit. */
  close(): Promise<void> {
    return this.#inQueue(new AbortController().signal, async () => {
      this.#closed = true;
      this.#statements.clear();
      this.#db?.close();
      this.#db = undefined;
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** The calls of the open transaction. */
  get #calls(): Transaction {
    const inside = <T>(work: (db: DatabaseSync) => T): T =>
      this.#attempt((db) => {
        if (db.isTransaction) return work(db);
        // The next statement would be committed alone.
        const problem = "SQLite has rolled the transaction back after an error of the disk";
        throw new StoreUnavailableError(this.address, problem);
      });
    return {
      batch: async (statements) => inside((db) => this.#run(db, statements)),
      commit: async (statements) =>
        inside((db) => {
          const results = this.#run(db, statements);
          this.#commit(() => db.exec("COMMIT"));
          this.#renewals.length = 0;
          this.#isTransactionOpen = false;
          return results;
        }),
    };
  }

  #begin(db: DatabaseSync): void {
    db.exec("BEGIN IMMEDIATE");
    db.exec("SAVEPOINT body");
    this.#isTransactionOpen = true;
  }

  /**
   * Runs renewals inside the open transaction. A renewal behind the transaction would come too late, although no
   * other process can claim anything before the transaction has ended.
   */
  #join(statements: readonly Sql[]): readonly SqlResult[] {
    const db = this.#open();
    const [now] = this.#run(db, [sql`SELECT ${sqliteDialect.now} AS now`]);
    const at = String(now?.rows[0]?.now);
    const timed = statements.map(({ texts, values }) => ({
      texts: texts.map((text) => withTime(text, at)),
      values,
    }));
    try {
      const results = this.#run(db, timed);
      this.#renewals.push(...timed);
      return results;
    } catch (error) {
      throw uncommittedError(this.address, error);
    }
  }

  #exclusively<T>(signal: AbortSignal | undefined, work: (db: DatabaseSync) => T): Promise<T> {
    return this.#bounded(signal, (limit) =>
      this.#inQueue(limit, () => this.#retryWhileBusy(limit, work)),
    );
  }

  async #bounded<T>(
    signal: AbortSignal | undefined,
    work: (limit: AbortSignal) => Promise<T>,
  ): Promise<T> {
    using limit = signal ? follow(signal) : deadline(LONGEST_CALL, noAnswer);
    return await work(limit.signal);
  }

  async #inQueue<T>(limit: AbortSignal, work: () => Promise<T>): Promise<T> {
    await this.#enter(limit);
    try {
      return await work();
    } finally {
      this.#connection.release();
    }
  }

  async #enter(limit: AbortSignal): Promise<void> {
    if (this.#currentTransaction.getStore()?.open) {
      const problem = "a call inside a transaction would wait for that transaction; use its `tx`";
      throw new StoreRefusedError(this.address, problem);
    }
    try {
      await this.#connection.acquire(limit);
    } catch (reason) {
      const problem = this.#isTransactionOpen
        ? "a transaction of this process keeps the file locked"
        : "the call took too long, or was aborted";
      throw new StoreUnavailableError(this.address, problem, reason);
    }
  }

  /**
   * Repeats the work while another process holds the file. SQLite's busy timeout would block the event loop, and the
   * renewal of locks with it.
   */
  #retryWhileBusy<T>(limit: AbortSignal, work: (db: DatabaseSync) => T): Promise<T> {
    return retry(
      async () => this.#attempt(work),
      async (error, attempt) => {
        if (!(error instanceof BusyError)) return undefined;
        await sleep(backoff(attempt, REPEAT), limit).catch((reason) => {
          const problem = "another process keeps the file locked";
          throw new StoreUnavailableError(this.address, problem, reason);
        });
        return 0;
      },
    );
  }

  /** Does the work, or rolls it back. */
  #attempt<T>(work: (db: DatabaseSync) => T): T {
    try {
      return work(this.#open());
    } catch (error) {
      this.#rollback();
      throw uncommittedError(this.address, error);
    }
  }

  #commit<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      throw commitError(this.address, error);
    }
  }

  /** Rolls the transaction back, except for the renewals inside it. */
  #rollback(): void {
    const db = this.#db;
    const renewals = this.#renewals.splice(0);
    if (!db) return;
    if (renewals.length > 0) this.#keepRenewals(db, renewals);
    if (db.isTransaction) db.exec("ROLLBACK");
  }

  /**
   * Commits the renewals alone. Their holders have the answers already, so the transaction keeps the file locked until
   * then. SQLite has ended the transaction itself after an error of the disk: then another process may be first, and the
   * next renewal of the holder tells, as may the fence.
   */
  #keepRenewals(db: DatabaseSync, renewals: readonly Sql[]): void {
    try {
      db.exec(db.isTransaction ? "ROLLBACK TO body" : "BEGIN IMMEDIATE");
      this.#run(db, renewals);
      db.exec("COMMIT");
    } catch {
      // Reported by the failure of the transaction.
    }
  }

  #open(): DatabaseSync {
    if (this.#closed) throw new StoreClosedError();
    if (this.#db) {
      if (!this.#isInMemory) this.#checkIdentity();
      return this.#db;
    }
    if (!this.#isInMemory) this.#makeFolder();
    const db = new DatabaseSync(this.#file, { timeout: 0 });
    try {
      // Readers and the writer do not block each other.
      db.exec("PRAGMA journal_mode = WAL");
      // An acknowledged commit is on the disk: a token is never issued twice.
      db.exec("PRAGMA synchronous = FULL");
    } catch (error) {
      db.close();
      throw error;
    }
    this.#path = resolve(this.#file);
    this.#identity = identityOf(this.#path);
    this.#db = db;
    return db;
  }

  /** Refuses a deleted file: its locks exclude no process that opens the name now. */
  #checkIdentity(): void {
    if (identityOf(this.#path) === this.#identity) return;
    const problem =
      "the file was deleted or replaced while it was open; restart the processes that opened it";
    throw new StoreRefusedError(this.address, problem);
  }

  /** Makes one level: Node's recursive mkdir never returns for a folder such as /proc/x/y. */
  #makeFolder(): void {
    const folder = dirname(this.#file);
    if (existsSync(folder)) return;
    try {
      mkdirSync(folder);
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      // Another process has just made the folder.
      if (code === "EEXIST") return;
      throw new StoreRefusedError(
        this.address,
        `the file's folder cannot be made: ${message}`,
        error,
      );
    }
  }

  #run(db: DatabaseSync, statements: readonly Sql[]): readonly SqlResult[] {
    return statements.map(({ texts, values }) => {
      const { statement, hasRows } = this.#prepare(db, texts.join("?"));
      const parameters = values as SQLInputValue[];
      if (hasRows) {
        const rows = statement.all(...parameters);
        return { rows, affected: rows.length, returned: undefined };
      }
      const { changes } = statement.run(...parameters);
      return { rows: [], affected: Number(changes), returned: undefined };
    });
  }

  #prepare(db: DatabaseSync, text: string): Prepared {
    const known = this.#statements.get(text);
    if (known) return known;
    if (this.#statements.size >= MOST_STATEMENTS) this.#statements.clear();
    const statement = db.prepare(text);
    statement.setReadBigInts(true);
    const prepared = { statement, hasRows: statement.columns().length > 0 };
    this.#statements.set(text, prepared);
    return prepared;
  }
}

/** The file's device and inode. Undefined without a file, as in memory. */
function identityOf(file: string): string | undefined {
  const found = statSync(file, { bigint: true, throwIfNoEntry: false });
  return found && `${found.dev}:${found.ino}`;
}
