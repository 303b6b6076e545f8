import { type Dialect, sql } from "../../database/sql.ts";

/** The SQL of MySQL and MariaDB. */
export const mysqlDialect: Dialect = {
  name: "mysql",
  migrationCount: 14,
  migrations: async () => (await import("./migrations.ts")).migrations,
  applied: sql`SELECT version FROM lockstep_migration`,
  isOptimistic: false,
  besideTables: [],
  ddlCommits: true,
  now: sql`TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
  onConflict: () => sql`ON DUPLICATE KEY UPDATE`,
  // Not VALUES(), which MySQL deprecates, and not a row alias, which MariaDB does not know.
  proposed: (_, value) => value,
  // The number comes with the answer to the statement: no state of the session is used.
  returning: (number) => sql`LAST_INSERT_ID(${number})`,
  // MariaDB alone has RETURNING.
  returnsRows: false,
  hasFunctions: false,
  // Not FOR SHARE, which MariaDB does not know.
  forShare: sql`LOCK IN SHARE MODE`,
  forUpdate: sql`FOR UPDATE`,
  skipLocked: sql`FOR UPDATE SKIP LOCKED`,
};
