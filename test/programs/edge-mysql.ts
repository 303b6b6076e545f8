import type { MysqlOptions } from "../../core/stores/mysql/database.ts";
import { openMysql } from "../../core/stores/mysql/index.ts";
import { sellAndShip } from "./edge-sql.ts";

/** A Worker on MySQL. */
export default {
  async fetch(request: Request, { DATABASE }: { readonly DATABASE: MysqlOptions }) {
    await using shop = await openMysql({ ...DATABASE, connections: 2 });
    return await sellAndShip(shop, request);
  },
};
