import { checkServerIdentity, type PeerCertificate } from "node:tls";
import type { QueryResult } from "pg";
import type { Database, SqlResult } from "../../database/sql.ts";
import { hostLiteral } from "../host-literal.ts";
import { checkTlsOptions } from "../pem.ts";
import { checkLogin, serverDatabase } from "../sql/server/database.ts";
import { LONGEST_SILENCE } from "../sql/server/driver.ts";
import { postgresDialect } from "./dialect.ts";
import { commitError, connectError, isFull, isReadOnly, uncommittedError } from "./errors.ts";
import { render } from "./literal.ts";
import { PostgresNotices } from "./notices.ts";
import { loadPg } from "./pg.ts";
import { PostgresKiller, PostgresWire } from "./wire.ts";

export interface PostgresOptions {
  readonly host: string;
  /** Default 5432. */
  readonly port?: number;
  readonly user: string;
  readonly password?: string;
  readonly database: string;

  /** Encrypts, and always checks the server's certificate and host name. */
  readonly tls?: PostgresTls;

  /**
   * The most connections for transactions and changes of stock. Two more serve locks and reads, one more listens from the
   * first wait on, and requests to cancel abandoned statements have short connections of their own. Default 10.
   */
  readonly connections?: number;
}

/** PEM texts. Without `ca`, the certificate authorities that Node trusts. */
export interface PostgresTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** Opens PostgreSQL 13 or later through a pool that connects on first use. */
export function postgresDatabase({
  host,
  port = 5_432,
  tls,
  connections,
  ...login
}: PostgresOptions): Database {
  checkTlsOptions(tls);
  checkLogin({ host, ...login });
  const load = async () => {
    const { Client, types } = await loadPg();
    const getTypeParser = (oid: number, format?: "text" | "binary") =>
      PARSERS[oid] ?? types.getTypeParser(oid, format as "text");
    const config = {
      ...{ host, port, ...login, types: { getTypeParser } },
      ssl: tls ? { ...tls, minVersion: "TLSv1.2" as const, ...checks(host) } : false,
    };
    return () => new PostgresWire(Client, config);
  };
  return serverDatabase(
    {
      address: `postgres://${hostLiteral(host)}:${port}/${login.database}`,
      dialect: postgresDialect,
      // An abandoned statement waits for locks for 2 s at most. All settings end with the transaction.
      begin: ["BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL lock_timeout = 2000"],
      limitSilence: [`SET LOCAL idle_in_transaction_session_timeout = ${LONGEST_SILENCE}`],
      unlimitSilence: [],
      wrapsLone: true,
      render,
      toResult,
      errors: { connect: connectError, commit: commitError, uncommitted: uncommittedError },
      load,
      notices: new PostgresNotices(load),
      killer: () => new PostgresKiller(),
      isFull,
      isReadOnly,
    },
    connections,
  );
}

/** Those of Lockstep's own columns, whatever parsers the application has set. Integers of 64 bits are texts. */
const PARSERS: Readonly<Record<number, (text: string) => unknown>> = {
  17: toBytes,
  20: String,
  21: Number,
  23: Number,
  25: String,
};

/** Parses a bytea in either of its formats. */
function toBytes(text: string): Buffer {
  if (text.startsWith("\\x")) return Buffer.from(text.slice(2), "hex");
  const bytes = text.replaceAll(/\\(\\|\d{3})/g, (_, escaped: string) =>
    escaped === "\\" ? escaped : String.fromCharCode(Number.parseInt(escaped, 8)),
  );
  return Buffer.from(bytes, "latin1");
}

/** Checks the certificate against the URL's host. By default, an address may be compared with "localhost". */
function checks(host: string) {
  return {
    rejectUnauthorized: true,
    checkServerIdentity: (_: string, certificate: PeerCertificate) =>
      checkServerIdentity(host, certificate),
  };
}

function toResult(answer: unknown): SqlResult {
  const { rows, rowCount } = answer as QueryResult;
  return { rows, affected: rowCount ?? 0, returned: undefined };
}
