import { type Dialect, raw, sql } from "../../database/sql.ts";

/** The SQL of PostgreSQL. */
export const postgresDialect: Dialect = {
  name: "postgres",
  migrationCount: 14,
  migrations: async () => (await import("./migrations.ts")).migrations,
  applied: sql`
    SELECT version FROM lockstep_migration
    WHERE version NOT IN (12, 14) OR 6 = (
      SELECT COUNT(DISTINCT proname) FROM pg_proc
      WHERE pg_function_is_visible(oid) AND proname IN (
        'lockstep_take', 'lockstep_drop', 'lockstep_decrement', 'lockstep_claim_fence', 'lockstep_append',
        'lockstep_read_state'))`,
  isOptimistic: false,
  // A schema that has been put in front of the search path since must not get tables of its own.
  besideTables: [
    sql`
      SELECT set_config('search_path', quote_ident(nspname) || ',' || current_setting('search_path'), true)
      FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
      WHERE pg_class.oid = to_regclass('lockstep_migration')`,
  ],
  ddlCommits: false,
  // The time at which the server received the batch. Not now(), which is the time of BEGIN. Not clock_timestamp(), which
  // changes within a statement and is served by no index. A statement that waits for a row judges by a time in the past:
  // it takes a lock too late, never too early, and an expiry one ttl after the arrival outlasts the holder's validity.
  now: sql`CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)`,
  onConflict: (columns) => raw(`ON CONFLICT (${columns}) DO UPDATE SET`),
  proposed: (column) => raw(`excluded.${column}`),
  returning: undefined,
  returnsRows: true,
  hasFunctions: true,
  forShare: sql`FOR SHARE`,
  forUpdate: sql`FOR UPDATE`,
  skipLocked: sql`FOR UPDATE SKIP LOCKED`,
};
