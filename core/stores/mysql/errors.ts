import { DuplicateKeyError } from "../../database/sql.ts";
import {
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../lock/errors.ts";
import { RolledBackError } from "../sql/server/driver.ts";

/** The fields of an error from mysql2. All are optional. */
interface DriverError {
  readonly errno?: number;
  readonly code?: string;
  readonly sqlState?: string;
  readonly message?: string;
}

/** Converts an error of a connection attempt. Nothing has happened. */
export function connectError(address: string, driverError: DriverError, error: unknown): Error {
  const { errno = 0, code = "", message } = driverError;
  const isRefused =
    error instanceof TypeError || LOGIN_REFUSED.has(errno) || /SSL|TLS|CERT|SIGNATURE/.test(code);
  const Problem = isRefused ? StoreRefusedError : StoreUnavailableError;
  return new Problem(
    address,
    message ||
      code ||
      "the server did not accept a connection in time; check its address, or retry",
    error,
  );
}

/** Converts an error of statements that end with a COMMIT. Without proof of a rollback, the outcome is unknown. */
export function commitError(address: string, driverError: DriverError, error: unknown): Error {
  const { errno = 0, message = "no reason given" } = driverError;
  const known = provenError(address, driverError, error);
  if (known) return known;
  if (TRANSIENT.has(errno)) return new StoreUnavailableError(address, message, error);
  return new UnknownOutcomeError(address, `a request was executed${reason(driverError)}`, error);
}

/** Converts an error of a transaction whose COMMIT was not sent. Nothing is committed. */
export function uncommittedError(address: string, driverError: DriverError, error: unknown): Error {
  const { errno, sqlState, message = "no reason given" } = driverError;
  const known = provenError(address, driverError, error);
  if (known) return known;
  const isOutage = sqlState === undefined || sqlState.startsWith("08") || OUTAGES.has(errno ?? 0);
  if (isOutage) return new RolledBackError(message, { cause: error });
  const isTransient = TRANSIENT.has(errno ?? 0) || CANCELLED.has(errno ?? 0);
  const Problem = isTransient ? StoreUnavailableError : StoreRefusedError;
  return new Problem(address, message, error);
}

/** Converts errors that prove a rollback, before a COMMIT or during one. */
function provenError(address: string, driverError: DriverError, error: unknown): Error | undefined {
  const { errno = 0, message = "no reason given" } = driverError;
  if (errno === ER_DUP_ENTRY) return new DuplicateKeyError(message, { cause: error });
  if (ROLLED_BACK.has(errno)) return new RolledBackError(message, { cause: error });
  if (!REFUSALS.has(errno)) return undefined;
  const isLockstepTable = errno === ER_NO_SUCH_TABLE && message.includes(".lockstep_");
  const advice = isLockstepTable ? " (run `lockstep migrate` to make the tables)" : "";
  return new StoreRefusedError(address, message + advice, error);
}

function reason({ errno, message }: DriverError): string {
  return errno === undefined ? "" : ` (error ${errno}: ${message})`;
}

// Numbers: https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html
// and https://mariadb.com/kb/en/mariadb-error-code-reference/

const ER_DUP_ENTRY = 1062;
const ER_NO_SUCH_TABLE = 1146;

/**
 * The server has rolled back the statement or its transaction, or has not read the statement. A repetition helps.
 *
 * - ER_LOCK_WAIT_TIMEOUT (the statement) and ER_LOCK_DEADLOCK (the transaction):
 *   https://dev.mysql.com/doc/refman/8.4/en/innodb-error-handling.html
 * - ER_CHECKREAD, of MariaDB's innodb_snapshot_isolation: the transaction, as for a deadlock.
 * - A wait for the lock of FLUSH TABLES WITH READ LOCK also ends a COMMIT with ER_LOCK_WAIT_TIMEOUT, after
 *   ha_rollback_trans (sql/handler.cc: ha_commit_trans).
 * - ER_TRANSACTION_ROLLBACK_DURING_COMMIT: sql/binlog.cc: MYSQL_BIN_LOG::commit calls ha_rollback_low before this.
 * - ER_CLIENT_INTERACTION_TIMEOUT: the server gave up waiting for the first packet of a command
 *   (sql-common/net_serv.cc: net_read_raw_loop, pkt_nr == 0), so it has read none. The next connection is another one.
 */
const ROLLED_BACK = new Set([1205, 1213, 1020, 3101, 4031]);

/**
 * The server raises these while it parses, resolves or executes a statement that is not COMMIT. It rolls that
 * statement back and executes no later one of the batch
 * (https://dev.mysql.com/doc/refman/8.4/en/innodb-error-handling.html,
 * https://dev.mysql.com/doc/c-api/8.4/en/c-api-multiple-queries.html), so that the batch's COMMIT has not run.
 */
const REFUSALS = new Set([
  // Parsing and resolving: syntax, missing databases, tables, columns, functions; privileges.
  1044, 1046, 1049, 1050, 1051, 1052, 1054, 1055, 1056, 1058, 1059, 1060, 1061, 1063, 1064, 1065,
  1066, 1067, 1068, 1069, 1070, 1071, 1072, 1073, 1074, 1075, 1090, 1091, 1093, 1101, 1103, 1109,
  1110, 1111, 1118, 1136, 1140, 1142, 1143, 1146, 1149, 1166, 1171, 1193, 1221, 1222, 1227, 1231,
  1232, 1235, 1241, 1247, 1248, 1267, 1271, 1300, 1305, 1318, 1327, 1356, 1370, 1410, 1582, 1584,
  3143,
  // Values: null, range, length, format, constraints.
  1048, 1242, 1264, 1265, 1292, 1364, 1365, 1366, 1369, 1406, 1411, 1416, 1426, 1441, 1451, 1452,
  1644, 1690, 3140, 3141, 3144, 3819, 4025, 4078,
  // sql_safe_updates refuses the change.
  1175,
  // The packet is larger than max_allowed_packet: it is dropped before it is parsed.
  1153,
]);

/** ER_OPTION_PREVENTS_STATEMENT, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, ER_READ_ONLY_MODE. */
const READ_ONLY = new Set([1290, 1792, 1836]);

/**
 * The server has not executed the statement, and may execute it later.
 *
 * - ER_TOO_MANY_USER_CONNECTIONS, ER_CON_COUNT_ERROR: sent in place of a handshake only (sql/sql_connect.cc:
 *   check_for_max_user_connections; sql/conn_handler/connection_handler_manager.cc: check_and_incr_conn_count).
 * - ER_USER_LIMIT_REACHED: sql/sql_connect.cc: check_mqh counts before the statement is executed.
 * - READ_ONLY: a primary that became a replica refuses the statement (sql/sql_parse.cc: deny_updates_if_read_only_option),
 *   or rolls a transaction back at its commit (sql/handler.cc: ha_commit_trans).
 * - ER_RECORD_FILE_FULL: a tablespace or its disk is full, and InnoDB rolls the statement back
 *   (https://dev.mysql.com/doc/refman/8.4/en/innodb-error-handling.html).
 */
const TRANSIENT = new Set([1040, 1114, 1203, 1226, ...READ_ONLY]);

/**
 * The server has cancelled the statement. Nothing tells whether a COMMIT was cancelled before or after its effect.
 *
 * ER_QUERY_INTERRUPTED (KILL QUERY), MariaDB's ER_STATEMENT_TIMEOUT (max_statement_time), MySQL's ER_QUERY_TIMEOUT
 * (max_execution_time).
 */
const CANCELLED = new Set([1317, 1969, 3024]);

/**
 * The connection or the server was lost. The outcome is certain only if no COMMIT was sent.
 *
 * ER_SERVER_SHUTDOWN, ER_NET_* and ER_ABORTING_CONNECTION, MariaDB's ER_CONNECTION_KILLED, ER_SERVER_OFFLINE_MODE,
 * ER_SERVER_ISNT_AVAILABLE, and the client errors that proxies pass on: CR_SERVER_GONE_ERROR, CR_SERVER_LOST,
 * CR_SERVER_LOST_EXTENDED. ProxySQL's own begin at 9000. ER_UNKNOWN_COM_ERROR: a Galera node has lost its cluster;
 * nothing tells whether before a COMMIT or after it.
 */
const OUTAGES = new Set([
  1047, 1053, 1152, 1156, 1157, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2055,
  3032, 3168, 9001, 9002, 9003, 9004, 9005, 9006,
]);

/**
 * A handshake that fails again on every attempt: access denied, a host that is not allowed or blocked, an unknown
 * database or authentication plugin, an expired password, a locked account, TLS required.
 */
const LOGIN_REFUSED = new Set([
  1044, 1045, 1049, 1129, 1130, 1251, 1275, 1524, 1698, 1820, 1862, 3118, 3159, 4151,
]);

/** Whether the server has refused a connection as one too many. */
export function isFull(error: unknown): boolean {
  return TOO_MANY_CONNECTIONS.has((error as DriverError | null)?.errno ?? 0);
}

/** ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED. */
const TOO_MANY_CONNECTIONS = new Set([1040, 1203, 1226]);

/** Whether the server has become a replica. */
export function isReadOnly(error: unknown): boolean {
  return READ_ONLY.has((error as DriverError | null | undefined)?.errno ?? 0);
}
