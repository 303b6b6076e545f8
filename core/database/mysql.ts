import { isIP } from "node:net";
import { createPool, type Pool, type PoolConnection, type ResultSetHeader } from "mysql2";
import { deadline, follow, noAnswer, race, sleep } from "../lock/abort.ts";
import { checkWhole } from "../lock/checks.ts";
import {
  StoreClosedError,
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../lock/errors.ts";
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
  type SqlValue,
  sql,
  type Transaction,
} from "./sql.ts";

export interface MysqlOptions {
  readonly host: string;
  /** Default 3306. */
  readonly port?: number;
  readonly user: string;
  readonly password?: string;
  readonly database: string;

  /** Encrypts, and checks the server's certificate and host name; there is no way not to check. */
  readonly tls?: MysqlTls;

  /**
   * For transactions. Two more are kept for calls of one round trip, such as the renewal of a lock while all of
   * these are in use. Default 10.
   */
  readonly connections?: number;
}

/** PEM texts. Without `ca` the certificate authorities that Node trusts count. */
export interface MysqlTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

const dialect: Dialect = {
  name: "mysql",
  schemaCommits: true,
  now: sql`TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
  // Not VALUES(), which MySQL is about to drop, nor a row alias, which MariaDB does not know.
  proposed: (_, value) => value,
  // It comes with the reply to the statement: no state of the session is used.
  reply: (number) => sql`LAST_INSERT_ID(${number})`,
  // Not FOR SHARE, which MariaDB does not know.
  shared: sql`LOCK IN SHARE MODE`,
  exclusive: sql`FOR UPDATE`,
  onConflict: () => sql`ON DUPLICATE KEY UPDATE`,
};

/** MySQL 8.0.16 or later, or MariaDB 10.6 or later, through a pool that connects on first use. */
export function openMysql(options: MysqlOptions): Database {
  if (options.tls && isIP(options.host) !== 0) {
    // mysql2 checks an address against the name "localhost".
    throw new TypeError("TLS to MySQL needs a host name, not an address, to check the certificate");
  }
  return new Mysql(options);
}

/** Connections that no transaction may use. */
const KEPT_FREE = 2;

class Mysql implements Database {
  readonly address: string;
  readonly dialect = dialect;
  readonly #pool: Pool;
  readonly #transactions: Places;
  #closed: Promise<void> | undefined;

  constructor({ host, port = 3306, tls, connections = 10, ...login }: MysqlOptions) {
    checkWhole("connections", connections, 1, 1_000);
    this.address = `mysql://${host}:${port}/${login.database}`;
    this.#transactions = new Places(connections);
    this.#pool = createPool({
      host,
      port,
      ...login,
      connectionLimit: connections + KEPT_FREE,
      connectTimeout: LONGEST_CALL,
      enableKeepAlive: true,
      // One packet is one round trip. No value is ever part of a text, so nothing can add a statement.
      multipleStatements: true,
      supportBigNumbers: true,
      bigNumberStrings: true,
      ...(tls && { ssl: { ...tls, minVersion: "TLSv1.2", verifyIdentity: true } }),
    });
  }

  async packet(statements: readonly Sql[], signal?: AbortSignal): Promise<readonly Result[]> {
    const alone = statements.length === 1;
    const texts = statements.map(render);
    const results = await this.#bounded(signal, (limit) =>
      this.#onConnection(limit, (query) => query(alone ? texts : [...BEGIN, ...texts, "COMMIT"])),
    );
    return alone ? results : results.slice(BEGIN.length, -1);
  }

  async read(statement: Sql, signal?: AbortSignal): Promise<readonly Row[]> {
    // Once more on another connection: the first may have been cut while this process was frozen.
    const ask = () => this.packet([statement], signal);
    try {
      const [result] = await ask().catch((error) => {
        if (error instanceof UnknownOutcomeError && !signal?.aborted) return ask();
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
      this.#inPlace(limit, () => this.#onConnection(limit, (query) => this.#transact(query, body))),
    );
  }

  close(): Promise<void> {
    // A connection that is still being made fails here once more; its own caller knows.
    this.#closed ??= new Promise((resolve) => this.#pool.end(() => resolve()));
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #transact<T>(query: Query, body: (tx: Transaction) => Promise<T>): Promise<T> {
    let start = BEGIN;
    let open = false;
    const send = async (texts: readonly string[]) => {
      const begin = start;
      start = [];
      open = true;
      return (await query([...begin, ...texts])).slice(begin.length);
    };
    const { tx, failure, end } = guarded(this.address, {
      packet: (statements) => send(statements.map(render)),
      commit: async (statements) => {
        const results = await send([...statements.map(render), "COMMIT"]);
        open = false;
        return results.slice(0, -1);
      },
    });
    try {
      const result = await body(tx);
      await end();
      if (open && failure() === undefined) await query(["ROLLBACK"]);
      return result;
    } catch (error) {
      await end();
      // Whatever the body makes of it: it was rolled back to be repeated.
      throw failure() instanceof VictimError ? failure() : error;
    }
  }

  /** Repeats the work when the server has rolled it back in favour of another transaction. */
  async #bounded<T>(
    signal: AbortSignal | undefined,
    work: (limit: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const limit = signal ? follow(signal) : deadline(LONGEST_CALL, noAnswer);
    try {
      for (let look = 0; ; look += 1) {
        try {
          return await work(limit.signal);
        } catch (error) {
          if (!(error instanceof VictimError)) throw error;
          await this.#pause(look, limit.signal, error);
        }
      }
    } finally {
      limit[Symbol.dispose]();
    }
  }

  async #pause(look: number, bound: AbortSignal, victim: VictimError): Promise<void> {
    try {
      await sleep(Math.min(2 ** look, 50) * Math.random(), bound);
    } catch {
      throw new StoreUnavailableError(this.address, "other transactions went first", victim);
    }
  }

  async #inPlace<T>(limit: AbortSignal, work: () => Promise<T>): Promise<T> {
    try {
      await this.#transactions.enter(limit);
    } catch (reason) {
      throw new StoreUnavailableError(this.address, "all connections are in use", reason);
    }
    try {
      return await work();
    } finally {
      this.#transactions.leave();
    }
  }

  async #onConnection<T>(limit: AbortSignal, work: (query: Query) => Promise<T>): Promise<T> {
    const connection = await this.#connect(limit);
    let failure: unknown;
    const failed = (error: unknown) => {
      failure ??= error;
      throw error;
    };
    try {
      return await work((texts) => this.#query(connection, texts, limit).catch(failed)).catch(
        failed,
      );
    } finally {
      if (failure === undefined) connection.release();
      else await this.#giveBack(connection, failure, limit);
    }
  }

  async #connect(limit: AbortSignal): Promise<PoolConnection> {
    if (this.#closed) throw new StoreClosedError();
    const connecting = new Promise<PoolConnection>((resolve, reject) =>
      this.#pool.getConnection((error, connection) =>
        error ? reject(error) : resolve(connection),
      ),
    );
    try {
      return await race(connecting, limit);
    } catch (error) {
      // The connection that arrives too late goes back to the pool.
      connecting.then((late) => late.release()).catch(() => {});
      throw this.#notConnected(saidBy(error, limit), error);
    }
  }

  async #query(
    connection: PoolConnection,
    texts: readonly string[],
    limit: AbortSignal,
  ): Promise<readonly Result[]> {
    try {
      const answer = await race(ask(connection, texts.join(";\n")), limit);
      return (texts.length === 1 ? [answer] : (answer as unknown[])).map(toResult);
    } catch (error) {
      throw this.#translate(saidBy(error, limit), error);
    }
  }

  /** A connection that is sound goes back to the pool, outside of any transaction. */
  async #giveBack(connection: PoolConnection, error: unknown, limit: AbortSignal): Promise<void> {
    if (error instanceof UnknownOutcomeError) return connection.destroy();
    try {
      await race(ask(connection, "ROLLBACK"), limit);
      connection.release();
    } catch {
      connection.destroy();
    }
  }

  #notConnected({ errno = 0, code = "", sqlState, message }: Said, error: unknown): unknown {
    const refused = sqlState === undefined ? isTlsProblem(code) : !PASSING.has(errno);
    const Problem = refused ? StoreRefusedError : StoreUnavailableError;
    return new Problem(this.address, message || code || "no connection in time", error);
  }

  #translate({ errno = 0, sqlState, message = "no reason given" }: Said, error: unknown): unknown {
    if (sqlState === undefined || INTERRUPTIONS.has(errno)) {
      return new UnknownOutcomeError(this.address, "a request was carried out", error);
    }
    if (errno === ER_DUP_ENTRY) return new DuplicateKeyError(message, { cause: error });
    if (VICTIMS.has(errno)) return new VictimError(message, { cause: error });
    const Problem = PASSING.has(errno) ? StoreUnavailableError : StoreRefusedError;
    const advice = errno === ER_NO_SUCH_TABLE ? " (make the tables by `lockstep migrate`)" : "";
    return new Problem(this.address, message + advice, error);
  }
}

/** Not mysql2/promise, which takes a stack trace for every query in case it fails. */
function ask(connection: PoolConnection, text: string): Promise<unknown> {
  return new Promise((resolve, reject) =>
    connection.query(text, (error, answer) => (error ? reject(error) : resolve(answer))),
  );
}

type Query = (texts: readonly string[]) => Promise<readonly Result[]>;

/** Read committed: no gap locks, and no snapshot that is older than the first statement's row lock. */
const BEGIN: readonly string[] = [
  "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
  "START TRANSACTION",
];

/** What an error of the client may say. */
interface Said {
  readonly errno?: number;
  readonly code?: string;
  readonly sqlState?: string;
  readonly message?: string;
}

/** Nothing where the limit came first: its reason is the caller's, and may be anything. */
function saidBy(error: unknown, limit: AbortSignal): Said {
  return limit.aborted && error === limit.reason ? {} : (error as Said);
}

class VictimError extends Error {}

// https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html
const ER_DUP_ENTRY = 1062;
const ER_NO_SUCH_TABLE = 1146;

/** ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK; MariaDB's ER_CHECKREAD, of innodb_snapshot_isolation. */
const VICTIMS = new Set([1205, 1213, 1020]);

/** ER_SERVER_SHUTDOWN, ER_QUERY_INTERRUPTED, MariaDB's ER_CONNECTION_KILLED, ER_QUERY_TIMEOUT. */
const INTERRUPTIONS = new Set([1053, 1317, 1927, 3024]);

/**
 * ER_CON_COUNT_ERROR, ER_DISK_FULL, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED, and the three of
 * a primary that became a replica: ER_OPTION_PREVENTS_STATEMENT, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION,
 * ER_READ_ONLY_MODE.
 */
const PASSING = new Set([1040, 1021, 1203, 1226, 1290, 1792, 1836]);

function isTlsProblem(code: string): boolean {
  return /SSL|TLS|CERT|SIGNATURE/.test(code);
}

function toResult(answer: unknown): Result {
  if (Array.isArray(answer)) return { rows: answer as Row[], affected: 0, reply: undefined };
  const { affectedRows, insertId } = answer as ResultSetHeader;
  return { rows: [], affected: Number(affectedRows), reply: BigInt(insertId) };
}

function render({ texts, values }: Sql): string {
  return texts.reduce((text, next, i) => text + literal(values[i - 1] ?? null) + next);
}

/** Text goes as hexadecimal digits: there is nothing to escape, whatever the character set or SQL mode. */
function literal(value: SqlValue): string {
  if (value === null) return "NULL";
  if (typeof value === "bigint") return String(value);
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new RangeError(`${value} is no SQL number`);
    return String(value);
  }
  return `X'${Buffer.from(value as string | Uint8Array).toString("hex")}'`;
}
