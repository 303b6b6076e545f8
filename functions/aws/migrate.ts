import { migrate } from "../../infra/migrate.ts";
import { services } from "./services.ts";

/** Brings the tables up to date, from inside of the network that the database is in. Answers with what it has done. */
export async function handler(): Promise<{ readonly applied: readonly string[] }> {
  return { applied: await migrate((await services()).database) };
}
