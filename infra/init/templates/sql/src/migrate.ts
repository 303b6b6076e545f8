import { migrateHandler } from "lockstep/lambda";
import { shop } from "./stores.ts";

/** Makes or migrates the tables, from inside the network of the database. */
export const handler = migrateHandler(shop);
