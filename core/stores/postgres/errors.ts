import { DuplicateKeyError } from "../../database/sql.ts";
import {
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../lock/errors.ts";
import { RolledBackError } from "../sql/server/driver.ts";

/**
 * The fields of an error from pg. All are optional.
 *
 * Not the severity, which is in the server's language. An error that the server raises rolls its transaction back, also
 * during COMMIT, and ends the batch. But proxies report lost connections as errors, and the end of a session may follow
 * its commit: only codes that are raised before the commit prove anything.
 */
interface PostgresError {
  /** The SQLSTATE, or the code of an error of Node. */
  readonly code?: string;
  readonly message?: string;
}

export function connectError(address: string, driverError: PostgresError, error: unknown): Error {
  const { code = "", message = "" } = driverError;
  const isRefused =
    error instanceof TypeError ||
    LOGIN_REFUSED.test(code) ||
    /SSL|TLS|CERT|SIGNATURE/.test(code) ||
    // The errors of pg itself have no code.
    /^SASL|support SSL|SSL connection/.test(message);
  const Problem = isRefused ? StoreRefusedError : StoreUnavailableError;
  return new Problem(
    address,
    message ||
      code ||
      "the server did not accept a connection in time; check its address, or retry",
    error,
  );
}

export function commitError(address: string, driverError: PostgresError, error: unknown): Error {
  const known = provenError(address, driverError, error);
  if (known) return known;
  const { code, message } = driverError;
  const reason = message === undefined ? "" : ` (${code ? `error ${code}: ` : ""}${message})`;
  return new UnknownOutcomeError(address, `a request was executed${reason}`, error);
}

export function uncommittedError(
  address: string,
  driverError: PostgresError,
  error: unknown,
): Error {
  const { code = "", message = "no reason given" } = driverError;
  const known = provenError(address, driverError, error);
  if (known) return known;
  const isOutage = !SQLSTATE.test(code) || OUTAGES.test(code);
  return isOutage
    ? new RolledBackError(message, { cause: error })
    : new StoreRefusedError(address, message, error);
}

/** Converts errors that prove a rollback, before a COMMIT or during one. */
function provenError(
  address: string,
  driverError: PostgresError,
  error: unknown,
): Error | undefined {
  const { code = "", message = "no reason given" } = driverError;
  if (code === UNIQUE_VIOLATION) return new DuplicateKeyError(message, { cause: error });
  if (ROLLED_BACK.has(code)) return new RolledBackError(message, { cause: error });
  if (TRANSIENT.has(code)) return new StoreUnavailableError(address, message, error);
  if (!SQLSTATE.test(code) || !REFUSALS.has(code.slice(0, 2))) return undefined;
  const advice = (/\blockstep_/.test(message) && ADVICE[code]) || "";
  return new StoreRefusedError(address, message + advice, error);
}

/** Whether the server has refused a connection as one too many. */
export function isFull(error: unknown): boolean {
  return (error as PostgresError | null)?.code === TOO_MANY_CONNECTIONS;
}

/** Whether the server is a standby, or has been one when the session began. */
export function isReadOnly(error: unknown): boolean {
  return (error as PostgresError | null | undefined)?.code === READ_ONLY;
}

// Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
// Places: in src/backend of PostgreSQL 17. An error after the commit was recorded ends the server: AbortTransaction calls
// RecordTransactionAbort, which panics (access/transam/xact.c). The end of a session (FATAL) may follow the commit.

const SQLSTATE = /^[0-9A-Z]{5}$/;
const UNIQUE_VIOLATION = "23505";
const TOO_MANY_CONNECTIONS = "53300";
const READ_ONLY = "25006";

const MIGRATE = " (run `lockstep migrate` to make the tables and functions)";

/** After errors about the tables and functions of Lockstep: undefined_table, undefined_function, insufficient_privilege. */
const ADVICE: Readonly<Record<string, string>> = {
  "42P01": MIGRATE,
  "42883": MIGRATE,
  "42501": " (grant the rights that docs/stores/postgres.md names)",
};

/**
 * The transaction is rolled back, or the server has not read the statement. A repetition helps.
 *
 * - serialization_failure: executor/nodeModifyTable.c: ExecUpdate, and before the commit is recorded
 *   storage/lmgr/predicate.c: PreCommit_CheckForSerializationFailure.
 * - deadlock_detected: storage/lmgr/deadlock.c: DeadLockReport. lock_not_available (lock_timeout): tcop/postgres.c:
 *   ProcessInterrupts.
 * - idle_in_transaction_session_timeout, idle_session_timeout: tcop/postgres.c: PostgresMain raises them between the
 *   arrival of a command and its execution at the latest ("any last-moment timeout is certain to be detected").
 */
const ROLLED_BACK = new Set(["40001", "40P01", "55P03", "25P03", "57P05"]);

/**
 * The server has not executed the transaction, and may execute it later.
 *
 * - read_only_sql_transaction: tcop/utility.c: PreventCommandIfReadOnly refuses the statement, as on a standby.
 * - query_canceled (statement_timeout): access/transam/xact.c: CommitTransaction holds interrupts, and after it
 *   tcop/postgres.c: ProcessInterrupts ignores a cancellation until the next command. A cancelled wait for a synchronous
 *   standby is a warning (replication/syncrep.c: SyncRepWaitForLSN).
 * - disk_full: storage/smgr/md.c: mdextend, when a statement extends a file. A commit that cannot be written ends the
 *   server (access/transam/xlog.c: XLogWrite panics).
 * - too_many_connections (storage/lmgr/proc.c: InitProcess), cannot_connect_now (tcop/backend_startup.c:
 *   ProcessStartupPacket): sent in place of a login only.
 */
const TRANSIENT = new Set([READ_ONLY, "57014", "53100", TOO_MANY_CONNECTIONS, "57P03"]);

/**
 * Classes of errors that the server raises while it parses, resolves or executes a statement, or checks deferred
 * constraints before it records the commit (commands/trigger.c: AfterTriggerFireDeferred, called by CommitTransaction).
 *
 * - 0A feature not supported: parser/analyze.c: CheckSelectLocking, for one. 54 limits: parser/parse_node.c:
 *   free_parsestate.
 * - 21 cardinality: executor/nodeSubplan.c: ExecSetParamPlan. 22 data: the functions of utils/adt.
 * - 23 constraints: executor/execMain.c: ExecConstraints; access/nbtree/nbtinsert.c: _bt_check_unique;
 *   utils/adt/ri_triggers.c: ri_ReportViolation. 44 check option: executor/execMain.c: ExecWithCheckOptions.
 * - 2B dependent objects: catalog/dependency.c: reportDependentObjects.
 * - 3D and 3F missing databases and schemas: utils/init/postinit.c: InitPostgres; catalog/namespace.c: get_namespace_oid.
 * - 42 syntax and access: parser/scan.l: scanner_yyerror; parser/parse_relation.c: parserOpenTable; catalog/aclchk.c:
 *   aclcheck_error.
 * - P0 raised by a function: pl_exec.c of PL/pgSQL: exec_stmt_raise.
 */
const REFUSALS = new Set(["0A", "21", "22", "23", "2B", "3D", "3F", "42", "44", "54", "P0"]);

/** Lost connections and servers that end: 08, 57P01 admin_shutdown, 57P02 crash_shutdown, 58 and XX of proxies. */
const OUTAGES = /^(?:08|57P0|58|XX)/;

/** A login that fails again on every attempt: access denied, no such database, no right to connect to it. */
const LOGIN_REFUSED = /^(?:28...|3D000|42501)$/;
