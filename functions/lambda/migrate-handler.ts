import type { Database } from "../../core/database/sql.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { type Provider, resolve } from "../invocation/provider.ts";

/** Returns a Lambda handler that makes or migrates the tables. It answers with the migrations that were applied. */
export function migrateHandler(
  store: Provider<{ readonly database: Database }>,
): () => Promise<{ readonly applied: readonly string[] }> {
  return async () => ({ applied: await migrate((await resolve(store))?.database) });
}
