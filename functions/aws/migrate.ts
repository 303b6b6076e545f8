import { migrateHandler } from "../lambda/migrate-handler.ts";
import { services } from "./services.ts";

/** Migrates the database from inside its network. */
export const handler = migrateHandler(services);
