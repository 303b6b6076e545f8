import { type Dialect, raw, sql } from "../../database/sql.ts";

/** The SQL of PostgreSQL. */
export const postgresDialect: Dialect = {
  name: "postgres",
  migrationCount: 14,
  migrations: async () => (await import("./migrations.ts")).migrations,
  isOptimistic: false,
  ddlCommits: false,
  // The time at which the server received the batch. Not now(), which is the time of BEGIN. Not clock_timestamp(), which
  // changes within a statement and is served by no index. A statement that waits for a row judges by a time in the past:
  // it takes a lock too late, never too early, and an expiry one ttl after the arrival outlasts the holder's validity.
  now: sql`CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)`,
  onConflict: (columns) => raw(`ON CONFLICT (${columns}) DO UPDATE SET`),
  proposed: (column) => raw(`excluded.${column}`),
  returning: undefined,
  hasFunctions: true,
  forShare: sql`FOR SHARE`,
  forUpdate: sql`FOR UPDATE`,
  skipLocked: sql`FOR UPDATE SKIP LOCKED`,
};
