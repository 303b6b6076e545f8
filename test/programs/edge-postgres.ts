import type { PostgresOptions } from "../../core/stores/postgres/database.ts";
import { openPostgres } from "../../core/stores/postgres/index.ts";
import { sellAndShip } from "./edge-sql.ts";

/** A Worker on PostgreSQL. */
export default {
  async fetch(request: Request, { DATABASE }: { readonly DATABASE: PostgresOptions }) {
    await using shop = await openPostgres({ ...DATABASE, connections: 2 });
    return await sellAndShip(shop, request);
  },
};
