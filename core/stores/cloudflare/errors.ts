import { DuplicateKeyError } from "../../database/sql.ts";
import { StoreRefusedError, StoreUnavailableError } from "../../lock/errors.ts";

/** Whether SQLite itself refused a statement. Other errors of Workers do not prove that nothing has happened. */
export function isSqliteMessage(message: string): boolean {
  return /: SQLITE_[A-Z]+/.test(message);
}

/** Converts the message of SQLite, which has rolled back everything. */
export function refusedError(address: string, message: string, cause?: unknown): Error {
  if (/\bUNIQUE constraint failed\b/.test(message))
    return new DuplicateKeyError(message, { cause });
  const isTransient = /: SQLITE_(?:BUSY|FULL|IOERR|LOCKED)/.test(message);
  const Problem = isTransient ? StoreUnavailableError : StoreRefusedError;
  return new Problem(address, message, cause);
}
