import { DuplicateKeyError } from "../../database/sql.ts";
import {
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../lock/errors.ts";

/** Another process holds the file. The statement has changed nothing. */
export class BusyError extends Error {}

/**
 * Converts an error from before a commit. The caller rolls back, unless SQLite has done so itself (vdbeaux.c:
 * sqlite3VdbeHalt), and no frame in the log has the mark of a commit (wal.c: sqlite3WalFrames). Nothing has happened.
 */
export function uncommittedError(address: string, error: unknown): unknown {
  const { errcode, message } = error as { errcode?: number; message: string };
  if (errcode === undefined) return error;
  if (errcode === SQLITE_CONSTRAINT_UNIQUE || errcode === SQLITE_CONSTRAINT_PRIMARYKEY) {
    return new DuplicateKeyError(message, { cause: error });
  }
  const kind = primaryCode(error);
  if (kind === SQLITE_BUSY || kind === SQLITE_LOCKED) return new BusyError(message);
  const isTransient = kind === SQLITE_IOERR || kind === SQLITE_FULL;
  const Problem = isTransient ? StoreUnavailableError : StoreRefusedError;
  return new Problem(address, message, error);
}

/**
 * Converts an error of a COMMIT. If the log's sync fails, or the disk is full where frames fill a sector after the
 * commit (wal.c: sqlite3WalFrames), the log holds the whole transaction, and SQLite rolls back in memory only. After a
 * crash, the next process to open the file takes the transaction for committed (https://www.sqlite.org/walformat.html).
 *
 * Other errors come before a frame is written: SQLITE_BUSY (wal.c: sqlite3WalBeginWriteTransaction) and constraints
 * (vdbeaux.c: sqlite3VdbeCheckFk).
 */
export function commitError(address: string, error: unknown): unknown {
  const kind = primaryCode(error);
  if (kind !== SQLITE_IOERR && kind !== SQLITE_FULL) return error;
  const what = `a change was committed (${(error as Error).message})`;
  return new UnknownOutcomeError(address, what, error);
}

/** The low byte of SQLite's extended result code. */
function primaryCode(error: unknown): number {
  return ((error as { errcode?: number }).errcode ?? 0) & 0xff;
}

// https://www.sqlite.org/rescode.html
const SQLITE_BUSY = 5;
const SQLITE_LOCKED = 6;
const SQLITE_IOERR = 10;
const SQLITE_FULL = 13;
const SQLITE_CONSTRAINT_PRIMARYKEY = 1555;
const SQLITE_CONSTRAINT_UNIQUE = 2067;
