/** SQL databases: statements, transactions, and the claim of a fence. */
export { claimFence } from "./claim.ts";
export type { Database, Sql, SqlResult, Transaction } from "./sql.ts";
export { DuplicateKeyError, list, sql } from "./sql.ts";
