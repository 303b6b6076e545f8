import { AsyncLocalStorage } from "node:async_hooks";
import { existsSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite";
import { deadline, follow, noAnswer, sleep } from "../lock/abort.ts";
import { StoreClosedError, StoreRefusedError, StoreUnavailableError } from "../lock/errors.ts";
import { LONGEST_CALL } from "../lock/time.ts";
import { guarded } from "./guarded.ts";
import { Places } from "./places.ts";
import {
  type Database,
  type Dialect,
  DuplicateKeyError,
  type Result,
  type Row,
  type Sql,
  sql,
  type Transaction,
} from "./sql.ts";

const dialect: Dialect = {
  name: "sqlite",
  schemaCommits: false,
  now: sql`CAST(unixepoch('subsec') * 1000000 AS INTEGER)`,
  proposed: (column) => ({ texts: [`excluded.${column}`], values: [] }),
  reply: undefined,
  // The write lock that every transaction takes at its start covers all reads in it.
  shared: sql``,
  exclusive: sql``,
  onConflict: (key) => ({ texts: [`ON CONFLICT (${key}) DO UPDATE SET`], values: [] }),
};

/**
 * A file that several processes of one machine may open, or ":memory:". It is made on first use, and so is its
 * folder, in a parent that is there.
 */
export function openSqlite(file: string): Database {
  return new Sqlite(file);
}

/** How many prepared statements are kept: lists of different lengths are different statements. */
const MOST_STATEMENTS = 200;

class Sqlite implements Database {
  readonly address: string;
  readonly dialect = dialect;
  readonly #file: string;
  readonly #statements = new Map<string, StatementSync>();
  #db: DatabaseSync | undefined;
  #closed = false;

  /** The one connection: an open transaction keeps everybody else out. */
  readonly #connection = new Places(1);

  /** The transaction whose body is running. */
  readonly #inside = new AsyncLocalStorage<{ open: boolean }>();

  constructor(file: string) {
    this.#file = file;
    this.address = `sqlite:${file}`;
  }

  packet(statements: readonly Sql[], signal?: AbortSignal): Promise<readonly Result[]> {
    return this.#bounded(signal, (limit) =>
      this.#inTurn(limit, () =>
        this.#whenFree(limit, (db) => {
          if (statements.length > 1) db.exec("BEGIN IMMEDIATE");
          const results = this.#run(db, statements);
          if (statements.length > 1) db.exec("COMMIT");
          return results;
        }),
      ),
    );
  }

  async read(statement: Sql, signal?: AbortSignal): Promise<readonly Row[]> {
    const [result] = await this.packet([statement], signal);
    return result?.rows ?? [];
  }

  transaction<T>(body: (tx: Transaction) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#bounded(signal, (limit) =>
      this.#inTurn(limit, async () => {
        await this.#whenFree(limit, (db) => db.exec("BEGIN IMMEDIATE"));
        const transaction = { open: true };
        const { tx, end } = guarded(this.address, this.#transaction());
        try {
          return await this.#inside.run(transaction, () => body(tx));
        } finally {
          await end();
          transaction.open = false;
          this.#rollback();
        }
      }),
    );
  }

  /** Waits for the transaction that is open, however long it takes. */
  close(): Promise<void> {
    return this.#inTurn(new AbortController().signal, async () => {
      this.#closed = true;
      this.#statements.clear();
      this.#db?.close();
      this.#db = undefined;
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #transaction(): Transaction {
    return {
      packet: async (statements) => this.#attempt((db) => this.#run(db, statements)),
      commit: async (statements) =>
        this.#attempt((db) => {
          const results = this.#run(db, statements);
          db.exec("COMMIT");
          return results;
        }),
    };
  }

  async #bounded<T>(
    signal: AbortSignal | undefined,
    work: (limit: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const limit = signal ? follow(signal) : deadline(LONGEST_CALL, noAnswer);
    try {
      return await work(limit.signal);
    } finally {
      limit[Symbol.dispose]();
    }
  }

  async #inTurn<T>(limit: AbortSignal, work: () => Promise<T>): Promise<T> {
    await this.#enter(limit);
    try {
      return await work();
    } finally {
      this.#connection.leave();
    }
  }

  async #enter(limit: AbortSignal): Promise<void> {
    if (this.#inside.getStore()?.open) {
      const problem = "this call would wait for the transaction that makes it: use that one's `tx`";
      throw new StoreRefusedError(this.address, problem);
    }
    try {
      await this.#connection.enter(limit);
    } catch (reason) {
      throw new StoreUnavailableError(this.address, "a transaction here keeps it locked", reason);
    }
  }

  /**
   * Does the work as soon as no other process holds the file.
   *
   * Not by SQLite's own busy timeout: that blocks the event loop, and the renewal of locks with it.
   */
  async #whenFree<T>(limit: AbortSignal, work: (db: DatabaseSync) => T): Promise<T> {
    for (let look = 0; ; look += 1) {
      try {
        return this.#attempt(work);
      } catch (error) {
        if (!(error instanceof BusyError)) throw error;
        await this.#pause(look, limit);
      }
    }
  }

  /** A few milliseconds at random: the file is held for one transaction at a time. */
  async #pause(look: number, signal: AbortSignal): Promise<void> {
    try {
      await sleep(Math.min(2 ** look, 20) * Math.random(), signal);
    } catch (reason) {
      throw new StoreUnavailableError(this.address, "another process keeps it locked", reason);
    }
  }

  /** Does the work, or leaves no trace of it. */
  #attempt<T>(work: (db: DatabaseSync) => T): T {
    try {
      return work(this.#open());
    } catch (error) {
      this.#rollback();
      throw this.#translate(error);
    }
  }

  #rollback(): void {
    if (this.#db?.isTransaction) this.#db.exec("ROLLBACK");
  }

  #open(): DatabaseSync {
    if (this.#closed) throw new StoreClosedError();
    if (this.#db) return this.#db;
    if (this.#file !== ":memory:") this.#makeFolder();
    const db = new DatabaseSync(this.#file, { timeout: 0 });
    try {
      // Readers and the writer do not block one another.
      db.exec("PRAGMA journal_mode = WAL");
      // A commit is on the disk when it is acknowledged: a token handed out is never handed out again.
      db.exec("PRAGMA synchronous = FULL");
    } catch (error) {
      db.close();
      throw error;
    }
    this.#db = db;
    return db;
  }

  /** One level only: Node's recursive mkdir never returns for a folder such as /proc/x/y. */
  #makeFolder(): void {
    const folder = dirname(this.#file);
    if (existsSync(folder)) return;
    try {
      mkdirSync(folder);
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      // Another process has just made it.
      if (code === "EEXIST") return;
      throw new StoreRefusedError(this.address, `its folder cannot be made: ${message}`, error);
    }
  }

  #run(db: DatabaseSync, statements: readonly Sql[]): readonly Result[] {
    return statements.map(({ texts, values }) => {
      const statement = this.#prepare(db, texts.join("?"));
      const parameters = values as SQLInputValue[];
      if (statement.columns().length > 0) {
        return { rows: statement.all(...parameters), affected: 0, reply: undefined };
      }
      const { changes } = statement.run(...parameters);
      return { rows: [], affected: Number(changes), reply: undefined };
    });
  }

  #prepare(db: DatabaseSync, text: string): StatementSync {
    const known = this.#statements.get(text);
    if (known) return known;
    if (this.#statements.size >= MOST_STATEMENTS) this.#statements.clear();
    const statement = db.prepare(text);
    statement.setReadBigInts(true);
    this.#statements.set(text, statement);
    return statement;
  }

  /** Whatever failed was rolled back, so nothing has happened. */
  #translate(error: unknown): unknown {
    const { errcode, message } = error as { errcode?: number; message: string };
    if (errcode === undefined) return error;
    if (errcode === SQLITE_CONSTRAINT_UNIQUE || errcode === SQLITE_CONSTRAINT_PRIMARYKEY) {
      return new DuplicateKeyError(message, { cause: error });
    }
    // The low byte is the kind of error, the rest tells variants apart.
    const kind = errcode & 0xff;
    if (kind === SQLITE_BUSY || kind === SQLITE_LOCKED) return new BusyError(message);
    const passing = [SQLITE_IOERR, SQLITE_FULL].includes(kind);
    const Problem = passing ? StoreUnavailableError : StoreRefusedError;
    return new Problem(this.address, message, error);
  }
}

class BusyError extends Error {}

// https://www.sqlite.org/rescode.html
const SQLITE_BUSY = 5;
const SQLITE_LOCKED = 6;
const SQLITE_IOERR = 10;
const SQLITE_FULL = 13;
const SQLITE_CONSTRAINT_PRIMARYKEY = 1555;
const SQLITE_CONSTRAINT_UNIQUE = 2067;
