import { isIP } from "node:net";
import type { ResultSetHeader } from "mysql2";
import type { Database, Row, Sql, SqlResult, SqlValue } from "../../database/sql.ts";
import { hostLiteral } from "../host-literal.ts";
import { checkTlsOptions } from "../pem.ts";
import { checkLogin, serverDatabase } from "../sql/server/database.ts";
import { LONGEST_SILENCE } from "../sql/server/driver.ts";
import { mysqlDialect } from "./dialect.ts";
import { commitError, connectError, isFull, isReadOnly, uncommittedError } from "./errors.ts";
import { loadMysql2 } from "./mysql2.ts";
import { MysqlKiller, MysqlWire } from "./wire.ts";

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
export function mysqlDatabase({
  host,
  port = 3306,
  tls,
  connections,
  ...login
}: MysqlOptions): Database {
  checkTlsOptions(tls);
  if (tls && isIP(host) !== 0) {
    // mysql2 compares a certificate with "localhost" when the host is an address.
    throw new TypeError("TLS to MySQL needs a host name, not an address, to check the certificate");
  }
  checkLogin({ host, ...login });
  const options = {
    host,
    port,
    ...login,
    // A batch is one round trip. `literal` writes every value, so none can add a statement.
    multipleStatements: true,
    supportBigNumbers: true,
    bigNumberStrings: true,
    ...(tls && {
      ssl: { ...tls, minVersion: "TLSv1.2", verifyIdentity: true, rejectUnauthorized: true },
    }),
  };
  return serverDatabase(
    {
      address: `mysql://${hostLiteral(host)}:${port}/${login.database}`,
      dialect: mysqlDialect,
      begin: ["SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"],
      limitSilence: [`SET wait_timeout = ${LONGEST_SILENCE / 1_000}`],
      unlimitSilence: ["SET wait_timeout = DEFAULT"],
      wrapsLone: false,
      render,
      toResult,
      errors: { connect: connectError, commit: commitError, uncommitted: uncommittedError },
      async load() {
        const { createConnection } = await loadMysql2();
        return () => new MysqlWire(createConnection, options);
      },
      killer: (connect) => new MysqlKiller(connect),
      isFull,
      isReadOnly,
    },
    connections,
  );
}

function toResult(answer: unknown): SqlResult {
  if (Array.isArray(answer)) {
    return { rows: answer as Row[], affected: answer.length, returned: undefined };
  }
  const { affectedRows, insertId } = answer as ResultSetHeader;
  return { rows: [], affected: Number(affectedRows), returned: BigInt(insertId) };
}

function render({ texts, values }: Sql): string {
  return texts.reduce((text, next, i) => text + literal(values[i - 1] ?? null) + next);
}

/**
 * Writes text as hexadecimal digits: no escapes, in any character set and SQL mode. Without the character set, MySQL would
 * take the digits for a number wherever it expects one, and JSON columns would refuse them. To MariaDB, the digits are a
 * text anyway, and comments for these versions are comments: with the character set, it reads more rows of a range.
 */
function literal(value: SqlValue): string {
  if (value === null) return "NULL";
  if (typeof value === "bigint") return String(value);
  if (typeof value === "number") {
    if (!Number.isFinite(value))
      throw new RangeError(`a number in SQL must be finite, not ${value}`);
    return String(value);
  }
  const digits = `X'${Buffer.from(value as string | Uint8Array).toString("hex")}'`;
  return typeof value === "string" ? `/*!50720 _utf8mb4*/${digits}` : digits;
}
