import { stockLock } from "../../core/inventory/inventory.ts";
import type { MysqlOptions } from "../../core/stores/mysql/database.ts";
import { openMysql } from "../../core/stores/mysql/index.ts";

/** A Worker that sells a teapot under a lock. */
export default {
  async fetch(request: Request, { MYSQL }: { readonly MYSQL: MysqlOptions }) {
    await using shop = await openMysql({ ...MYSQL, connections: 2 });
    const operationId = new URL(request.url).searchParams.get("id") ?? "";
    const terms = { ttl: "20s", wait: "20s" } as const;
    const sale = await shop.locks.withLock(stockLock("teapot"), terms, ({ fence }) =>
      shop.inventory.decrement({ sku: "teapot", quantity: 1, operationId, fence }),
    );
    return Response.json(sale);
  },
};
