import { migrate } from "../core/stores/sql/migrate.ts";
import { type AnyStore, open } from "./open.ts";

/** Opens a store that has its tables. */
export async function openReady(url: string): Promise<AnyStore> {
  const opened = await open(url);
  if (opened.has("database")) await migrate(opened.database);
  if (opened.has("table")) await opened.table.create();
  return opened;
}
