/** SQL in transactions that begin with a fence. */
export { claimFence } from "./claim.ts";
export type { Database, Dialect, Result, Row, Sql, SqlValue, Transaction } from "./sql.ts";
export { DuplicateKeyError, list, sql } from "./sql.ts";
