import { Semaphore } from "../../../database/semaphore.ts";
import { serialTransaction } from "../../../database/serial-transaction.ts";
import {
  type ConnectionLane,
  checkBatch,
  checkRead,
  checkTransaction,
  type Database,
  type Row,
  type Sql,
  type SqlResult,
  type Transaction,
} from "../../../database/sql.ts";
import { deadline, follow, noAnswer, race, sleep } from "../../../lock/abort.ts";
import { checkText, checkWhole } from "../../../lock/checks.ts";
import {
  hasCode,
  StoreClosedError,
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../../lock/errors.ts";
import { type Backoff, backoff, retry } from "../../../lock/retry.ts";
import {
  elapsedSince,
  type Instant,
  instant,
  LONGEST_CALL,
  type Millis,
} from "../../../lock/time.ts";
import type { PooledConnection, Wire } from "./connection.ts";
import { type DriverErrors, LONGEST_SILENCE, RolledBackError, type SqlDriver } from "./driver.ts";
import { ConnectionPool } from "./pool.ts";

/**
 * Opens the database of a server through a pool that connects on first use. The pool has `connections` connections for
 * transactions and changes of stock, two more for locks and reads, and one more that ends abandoned statements.
 */
export function serverDatabase<W extends Wire>(
  driver: SqlDriver<W>,
  connections: number = DEFAULT_CONNECTIONS,
): Database {
  checkWhole("connections", connections, 1, 1_000);
  return new ServerDatabase(driver, connections);
}

const DEFAULT_CONNECTIONS = 10;

/** Connections for locks and reads alone. */
const RESERVED_FOR_LOCKS = 2;

class ServerDatabase<W extends Wire> implements Database {
  readonly address: string;
  readonly dialect: SqlDriver["dialect"];
  readonly notices: SqlDriver["notices"];
  readonly #driver: SqlDriver<W>;
  readonly #pool: ConnectionPool<W>;

  /** Bounds the "work" lane: calls that wait for locked rows leave two connections for locks and reads. */
  readonly #work: Semaphore;

  constructor(driver: SqlDriver<W>, connections: number) {
    this.address = driver.address;
    this.dialect = driver.dialect;
    this.notices = driver.notices;
    this.#driver = driver;
    this.#work = new Semaphore(connections);
    this.#pool = new ConnectionPool(driver, connections + RESERVED_FOR_LOCKS);
  }

  async batch(
    statements: readonly Sql[],
    signal?: AbortSignal,
    lane: ConnectionLane = "work",
  ): Promise<readonly SqlResult[]> {
    checkBatch(statements, signal);
    const { begin, wrapsLone, render } = this.#driver;
    const isBare = statements.length === 1 && !wrapsLone;
    const texts = statements.map(render);
    const results = await this.#bounded(signal, (limit) =>
      this.#onConnection(lane, limit, (query) =>
        query(isBare ? texts : [...begin, ...texts, "COMMIT"]),
      ),
    );
    return isBare ? results : results.slice(begin.length, -1);
  }

  async read(statement: Sql, signal?: AbortSignal): Promise<readonly Row[]> {
    checkRead(statement, signal);
    const readOnce = async (limit?: AbortSignal) =>
      (await this.batch([statement], limit, "locks"))[0];
    try {
      using first = deadline(FIRST_READ, noAnswer, signal);
      const result = await readOnce(first.signal).catch((error) => {
        const isLost = hasCode(error, "UNKNOWN_OUTCOME") || first.signal.aborted;
        if (isLost && !signal?.aborted) return readOnce(signal);
        throw error;
      });
      return result?.rows ?? [];
    } catch (error) {
      if (!(error instanceof UnknownOutcomeError)) throw error;
      throw new StoreUnavailableError(this.address, "the answer to a read was lost", error);
    }
  }

  async transaction<T>(body: (tx: Transaction) => Promise<T>, signal?: AbortSignal): Promise<T> {
    checkTransaction(body, signal);
    return this.#bounded(signal, (limit) =>
      this.#onConnection("work", limit, (query) => this.#transact(query, body, limit)),
    );
  }

  async close(): Promise<void> {
    await Promise.all([this.#pool.close(), this.notices?.close()]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #transact<T>(
    query: SendQuery,
    body: (tx: Transaction) => Promise<T>,
    limit: AbortSignal,
  ): Promise<T> {
    const { begin, limitSilence, unlimitSilence, render, errors } = this.#driver;
    let open = false;
    let answeredAt: Instant | undefined;
    const send = async (
      start: readonly string[],
      texts: readonly string[],
      translate: DriverErrors["commit"],
    ) => {
      if (answeredAt && elapsedSince(answeredAt) >= LONGEST_SILENCE) {
        throw new RolledBackError(SILENT);
      }
      const before = open ? [] : start;
      open = true;
      const results = await query([...before, ...texts], translate);
      answeredAt = instant();
      return results.slice(before.length);
    };
    const calls: Transaction = {
      batch: (statements) =>
        send([...begin, ...limitSilence], statements.map(render), errors.uncommitted),
      commit: async (statements) => {
        const settings = open ? unlimitSilence : [];
        const texts = [...statements.map(render), ...settings, "COMMIT"];
        const results = await send(begin, texts, errors.commit);
        open = false;
        return results.slice(0, statements.length);
      },
    };
    const { run, failure } = serialTransaction(this.address, calls, limit);
    try {
      const result = await run(body);
      // A lost answer to ROLLBACK is harmless: nothing is committed.
      if (open && failure() === undefined) await query(rollback(this.#driver)).catch(() => {});
      return result;
    } catch (error) {
      // The body may have replaced the error. The transaction is repeated all the same.
      throw failure() instanceof RolledBackError ? failure() : error;
    }
  }

  /** Repeats the work after a RolledBackError, until the limit. */
  async #bounded<T>(
    signal: AbortSignal | undefined,
    work: (limit: AbortSignal) => Promise<T>,
  ): Promise<T> {
    using limit = signal ? follow(signal) : deadline(LONGEST_CALL, noAnswer);
    let problem = TOO_LONG;
    return await retry(
      () => work(limit.signal),
      async (error, attempt) => {
        if (!(error instanceof RolledBackError)) return undefined;
        if (error.message === SILENT && attempt > 0) {
          throw new StoreRefusedError(this.address, `${SILENT}; nothing was changed`, error);
        }
        // The server gives no reason for an attempt that the limit has ended.
        if (!limit.signal.aborted) problem = error.message;
        await sleep(backoff(attempt, REPEAT), limit.signal).catch(() => {
          throw new StoreUnavailableError(this.address, problem, error);
        });
        return 0;
      },
    );
  }

  async #onConnection<T>(
    lane: ConnectionLane,
    limit: AbortSignal,
    work: (query: SendQuery) => Promise<T>,
  ): Promise<T> {
    const connection = await this.#enter(lane, limit);
    let failure: unknown;
    const noteFailure = (error: unknown) => {
      failure ??= error;
      throw error;
    };
    const query: SendQuery = (texts, translate = this.#driver.errors.commit) =>
      this.#query(connection, texts, translate, limit).catch(noteFailure);
    try {
      return await work(query).catch(noteFailure);
    } finally {
      if (this.#driver.isReadOnly((failure as Error | undefined)?.cause))
        this.#pool.renew(connection);
      const isUsable =
        failure === undefined || (await this.#isRolledBack(connection, failure, limit));
      if (isUsable) this.#pool.release(connection);
      const ended = isUsable ? Promise.resolve() : this.#pool.abandon(connection);
      // An abandoned statement keeps its permit until the server has ended it.
      if (lane === "work") void ended.then(() => this.#work.release());
    }
  }

  /** Resolves to whether the connection is usable after a failure: outside of any transaction, with all answers read. */
  async #isRolledBack(
    connection: PooledConnection<W>,
    failure: unknown,
    limit: AbortSignal,
  ): Promise<boolean> {
    if (failure instanceof UnknownOutcomeError || limit.aborted || connection.isClosed) {
      return false;
    }
    return race(connection.query(together(rollback(this.#driver))), limit).then(
      () => true,
      () => false,
    );
  }

  async #enter(lane: ConnectionLane, limit: AbortSignal): Promise<PooledConnection<W>> {
    if (lane !== "work") return await this.#connect(limit);
    try {
      await this.#work.acquire(limit);
    } catch (reason) {
      throw new StoreUnavailableError(
        this.address,
        "all connections are in use; retry, or raise `connections`",
        reason,
      );
    }
    try {
      return await this.#connect(limit);
    } catch (error) {
      this.#work.release();
      throw error;
    }
  }

  async #connect(limit: AbortSignal): Promise<PooledConnection<W>> {
    try {
      return await this.#pool.acquire(limit);
    } catch (error) {
      if (error instanceof StoreClosedError) throw error;
      throw this.#driver.errors.connect(this.address, driverError(error, limit), error);
    }
  }

  async #query(
    connection: PooledConnection<W>,
    texts: readonly string[],
    translate: DriverErrors["commit"],
    limit: AbortSignal,
  ): Promise<readonly SqlResult[]> {
    // The request is not sent, and the server rolls back what came before.
    if (connection.isClosed) throw new RolledBackError("the server has closed the connection");
    try {
      const answer = await race(connection.query(together(texts)), limit);
      return (texts.length === 1 ? [answer] : (answer as unknown[])).map(this.#driver.toResult);
    } catch (error) {
      throw translate(this.address, driverError(error, limit), error);
    }
  }
}

/** Ends a transaction without a commit, with its settings. */
function rollback({ unlimitSilence }: SqlDriver): readonly string[] {
  return ["ROLLBACK", ...unlimitSilence];
}

const TOO_LONG = "the call took too long, or was aborted";

const SILENT = `a transaction was silent for more than ${LONGEST_SILENCE / 1_000} s between two requests`;

/** The longest first attempt of a read. The second one uses another connection. */
const FIRST_READ: Millis = 2_000;

/**
 * Rolled-back transactions of several clients spread at random. After a few deadlocks they leave each other the time that
 * PostgreSQL takes to find one, which is 1 s (deadlock_timeout).
 */
const REPEAT: Backoff = { base: 1, factor: 8, max: 1_000, jitter: "full" };

type SendQuery = (
  texts: readonly string[],
  translate?: DriverErrors["commit"],
) => Promise<readonly SqlResult[]>;

/** The driver's error. Empty when the limit aborted: the caller's reason may be any value. */
function driverError(error: unknown, limit: AbortSignal): object {
  return limit.aborted && error === limit.reason ? {} : Object(error);
}

interface Login {
  readonly host: string;
  readonly user: string;
  readonly database: string;
}

/** Throws a TypeError or RangeError unless the options name the server, the user and the database. */
export function checkLogin({ host, user, database }: Login): void {
  checkText("host", host, 255);
  checkText("user", user, 255);
  checkText("database", database, 255);
}

/** Joins statements to one request. A statement may end with a comment, which goes on to the end of its line. */
function together(statements: readonly string[]): string {
  return statements.join("\n;\n");
}
