import { isIP } from "node:net";
import type { ResultSetHeader } from "mysql2";
import { Semaphore } from "../../database/semaphore.ts";
import { serialTransaction } from "../../database/serial-transaction.ts";
import type {
  ConnectionLane,
  Database,
  Row,
  Sql,
  SqlResult,
  SqlValue,
  Transaction,
} from "../../database/sql.ts";
import { deadline, follow, noAnswer, race, sleep } from "../../lock/abort.ts";
import { checkWhole } from "../../lock/checks.ts";
import {
  hasCode,
  StoreClosedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../lock/errors.ts";
import { type Backoff, backoff, retry } from "../../lock/retry.ts";
import { LONGEST_CALL, type Millis } from "../../lock/time.ts";
import type { PooledConnection } from "./connection.ts";
import { mysqlDialect } from "./dialect.ts";
import {
  commitError,
  connectError,
  type DriverError,
  RolledBackError,
  uncommittedError,
} from "./errors.ts";
import { MysqlPool } from "./pool.ts";

export interface MysqlOptions {
  readonly host: string;
  /** Default 3306. */
  readonly port?: number;
  readonly user: string;
  readonly password?: string;
  readonly database: string;

  /** Encrypts, and always checks the server's certificate and host name. */
  readonly tls?: MysqlTls;

  /**
   * The most connections for transactions and changes of stock. Two more serve locks and reads, and one more kills
   * abandoned statements at the server. The server never sees more connections. Default 10.
   */
  readonly connections?: number;
}

/** PEM texts. Without `ca`, the certificate authorities that Node trusts. */
export interface MysqlTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** Opens MySQL 8.0.16 or later, or MariaDB 10.6 or later, through a pool that connects on first use. */
export function mysqlDatabase(options: MysqlOptions): Database {
  if (options.tls && isIP(options.host) !== 0) {
    // mysql2 compares a certificate with "localhost" when the host is an address.
    throw new TypeError("TLS to MySQL needs a host name, not an address, to check the certificate");
  }
  return new Mysql(options);
}

/** Connections for locks and reads alone. */
const RESERVED_FOR_LOCKS = 2;

class Mysql implements Database {
  readonly address: string;
  readonly dialect = mysqlDialect;
  readonly #pool: MysqlPool;

  /** Bounds the "work" lane: calls that wait for locked rows leave two connections for locks and reads. */
  readonly #work: Semaphore;

  constructor({ host, port = 3306, tls, connections = 10, ...login }: MysqlOptions) {
    checkWhole("connections", connections, 1, 1_000);
    this.address = `mysql://${host}:${port}/${login.database}`;
    this.#work = new Semaphore(connections);
    const options = {
      host,
      port,
      ...login,
      // A batch is one round trip. `literal` writes every value, so none can add a statement.
      multipleStatements: true,
      supportBigNumbers: true,
      bigNumberStrings: true,
      ...(tls && { ssl: { ...tls, minVersion: "TLSv1.2", verifyIdentity: true } }),
    };
    this.#pool = new MysqlPool(options, connections + RESERVED_FOR_LOCKS);
  }

  async batch(
    statements: readonly Sql[],
    signal?: AbortSignal,
    lane: ConnectionLane = "work",
  ): Promise<readonly SqlResult[]> {
    const isLone = statements.length === 1;
    const texts = statements.map(render);
    const results = await this.#bounded(signal, (limit) =>
      this.#onConnection(lane, limit, (query) =>
        query(isLone ? texts : [...BEGIN, ...texts, "COMMIT"]),
      ),
    );
    return isLone ? results : results.slice(BEGIN.length, -1);
  }

  async read(statement: Sql, signal?: AbortSignal): Promise<readonly Row[]> {
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

  transaction<T>(body: (tx: Transaction) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#bounded(signal, (limit) =>
      this.#onConnection("work", limit, (query) => this.#transact(query, body)),
    );
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #transact<T>(query: Query, body: (tx: Transaction) => Promise<T>): Promise<T> {
    let start = BEGIN;
    let open = false;
    const send = async (texts: readonly string[], translate: typeof commitError) => {
      const begin = start;
      start = [];
      open = true;
      return (await query([...begin, ...texts], translate)).slice(begin.length);
    };
    const { tx, failure, end } = serialTransaction(this.address, {
      batch: (statements) => send(statements.map(render), uncommittedError),
      commit: async (statements) => {
        const results = await send([...statements.map(render), "COMMIT"], commitError);
        open = false;
        return results.slice(0, -1);
      },
    });
    try {
      const result = await body(tx);
      await end();
      // A lost answer to ROLLBACK is harmless: nothing is committed.
      if (open && failure() === undefined) await query(["ROLLBACK"]).catch(() => {});
      return result;
    } catch (error) {
      await end();
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
    return await retry(
      () => work(limit.signal),
      async (error, attempt) => {
        if (!(error instanceof RolledBackError)) return undefined;
        await sleep(backoff(attempt, REPEAT), limit.signal).catch(() => {
          throw new StoreUnavailableError(this.address, error.message, error);
        });
        return 0;
      },
    );
  }

  async #onConnection<T>(
    lane: ConnectionLane,
    limit: AbortSignal,
    work: (query: Query) => Promise<T>,
  ): Promise<T> {
    const connection = await this.#enter(lane, limit);
    let failure: unknown;
    const noteFailure = (error: unknown) => {
      failure ??= error;
      throw error;
    };
    const query: Query = (texts, translate = commitError) =>
      this.#query(connection, texts, translate, limit).catch(noteFailure);
    try {
      return await work(query).catch(noteFailure);
    } finally {
      const isUsable = failure === undefined || (await isRolledBack(connection, failure, limit));
      if (isUsable) this.#pool.release(connection);
      const ended = isUsable ? Promise.resolve() : this.#pool.abandon(connection);
      // An abandoned statement keeps its permit until the server has ended it.
      if (lane === "work") void ended.then(() => this.#work.release());
    }
  }

  async #enter(lane: ConnectionLane, limit: AbortSignal): Promise<PooledConnection> {
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

  async #connect(limit: AbortSignal): Promise<PooledConnection> {
    try {
      return await this.#pool.acquire(limit);
    } catch (error) {
      if (error instanceof StoreClosedError) throw error;
      throw connectError(this.address, driverError(error, limit), error);
    }
  }

  async #query(
    connection: PooledConnection,
    texts: readonly string[],
    translate: typeof commitError,
    limit: AbortSignal,
  ): Promise<readonly SqlResult[]> {
    try {
      const answer = await race(connection.query(texts.join(";\n")), limit);
      return (texts.length === 1 ? [answer] : (answer as unknown[])).map(toResult);
    } catch (error) {
      throw translate(this.address, driverError(error, limit), error);
    }
  }
}

/** Resolves to whether the connection is usable after a failure: outside of any transaction, with all answers read. */
async function isRolledBack(
  connection: PooledConnection,
  failure: unknown,
  limit: AbortSignal,
): Promise<boolean> {
  if (failure instanceof UnknownOutcomeError || limit.aborted || connection.isClosed) return false;
  return race(connection.query("ROLLBACK"), limit).then(
    () => true,
    () => false,
  );
}

/** The longest first attempt of a read. The second one uses another connection. */
const FIRST_READ: Millis = 2_000;

/** Rolled-back transactions of several clients spread at random. */
const REPEAT: Backoff = { base: 1, factor: 2, max: 50, jitter: "full" };

type Query = (
  texts: readonly string[],
  translate?: typeof commitError,
) => Promise<readonly SqlResult[]>;

/** Read committed: no gap locks, and no snapshot from before the first statement's row lock. */
const BEGIN: readonly string[] = [
  "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
  "START TRANSACTION",
];

/** The driver's error. Empty when the limit aborted: the caller's reason may be any value. */
function driverError(error: unknown, limit: AbortSignal): DriverError {
  return limit.aborted && error === limit.reason ? {} : (error as DriverError);
}

function toResult(answer: unknown): SqlResult {
  if (Array.isArray(answer)) return { rows: answer as Row[], affected: 0, returned: undefined };
  const { affectedRows, insertId } = answer as ResultSetHeader;
  return { rows: [], affected: Number(affectedRows), returned: BigInt(insertId) };
}

function render({ texts, values }: Sql): string {
  return texts.reduce((text, next, i) => text + literal(values[i - 1] ?? null) + next);
}

/** Writes text as hexadecimal digits: no escapes, in any character set and SQL mode. */
function literal(value: SqlValue): string {
  if (value === null) return "NULL";
  if (typeof value === "bigint") return String(value);
  if (typeof value === "number") {
    if (!Number.isFinite(value))
      throw new RangeError(`a number in SQL must be finite, not ${value}`);
    return String(value);
  }
  return `X'${Buffer.from(value as string | Uint8Array).toString("hex")}'`;
}
