import { type Dialect, raw, sql } from "../../database/sql.ts";

/** The SQL of SQLite. */
export const sqliteDialect: Dialect = {
  name: "sqlite",
  migrationCount: 14,
  migrations: async () => (await import("./migrations.ts")).migrations,
  applied: sql`SELECT version FROM lockstep_migration`,
  isOptimistic: false,
  besideTables: [],
  ddlCommits: false,
  now: sql`CAST(unixepoch('subsec') * 1000000 AS INTEGER)`,
  onConflict: (column) => raw(`ON CONFLICT (${column}) DO UPDATE SET`),
  proposed: (column) => raw(`excluded.${column}`),
  returning: undefined,
  returnsRows: true,
  hasFunctions: false,
  // Each transaction takes the file's write lock at its start.
  forShare: sql``,
  forUpdate: sql``,
  skipLocked: sql``,
};

/** Replaces the clock in a statement by a time, so that the statement has the same effect again later. */
export function withTime(text: string, at: string): string {
  const [clock = ""] = sqliteDialect.now.texts;
  return text.replaceAll(clock, at);
}
