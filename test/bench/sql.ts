import { randomUUID } from "node:crypto";
import type { Database } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import type { Comparison, Contender } from "./measure.ts";
import type { Contest } from "./suite.ts";

/** The number of clients that sell at the same time. */
export const CLIENTS = 16;

/** The orders of one `decrementMany`. */
const BATCH = 200;

export interface SqlContest {
  /** A migrated database without stock. */
  readonly ours: Database;

  /** The type of a key's column. */
  readonly text: string;

  /** Executes a statement over one of the raw connections. */
  readonly query: (text: string, client?: number) => Promise<unknown>;

  /** The database's own lock, by name, and the statements that take it and release it. */
  readonly ownLock: { readonly name: string; readonly take: string; readonly release: string };

  /** The aims of a pair over its floor, and of a fenced decrement at one client and at many. */
  readonly aims: { readonly pair: number; readonly one: number; readonly many: number };
}

/** Locks and stock of a SQL database beside raw statements. `close` closes `ours`. */
export async function compareSql({
  ours,
  text,
  query,
  ownLock,
  aims,
}: SqlContest): Promise<Omit<Contest, "server">> {
  const [locks, stock] = [sqlLocks(ours), sqlInventory(ours)];
  const sku = "teapot";
  await query("CREATE TABLE floor (id INT PRIMARY KEY, value INT)");
  await query(`CREATE TABLE hot (sku ${text} PRIMARY KEY, quantity BIGINT NOT NULL)`);
  await query(`INSERT INTO hot VALUES ('${sku}', 1000000000)`);
  await stock.set({ sku, quantity: 1_000_000, operationId: randomUUID() });
  const lock = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 0 });

  const sell = (client: number) =>
    query(`UPDATE hot SET quantity = quantity - 1 WHERE sku = '${sku}' AND quantity >= 1`, client);
  const sellOurs = () =>
    stock.decrement({ sku, quantity: 1, operationId: randomUUID(), fence: lock.fence });
  const sellMany = () =>
    stock.decrementMany({
      sku,
      fence: lock.fence,
      orders: Array.from({ length: BATCH }, () => ({ operationId: randomUUID(), quantity: 1 })),
    });
  const contenders: Contender[] = [
    {
      name: FLOOR,
      async run() {
        await query("INSERT INTO floor VALUES (1, 1)");
        await query("DELETE FROM floor WHERE id = 1");
      },
    },
    {
      name: "acquire + release",
      async run() {
        await (await locks.lock("bench", { ttl: 60_000, wait: 0 })).unlock();
      },
    },
    {
      name: ownLock.name,
      async run() {
        await query(ownLock.take);
        await query(ownLock.release);
      },
    },
    { name: "plain UPDATE, 1 client", run: sell },
    { name: `plain UPDATE, ${CLIENTS} clients`, clients: CLIENTS, run: sell },
    { name: "fenced decrement, 1 client", run: sellOurs },
    { name: `fenced decrement, ${CLIENTS} clients`, clients: CLIENTS, run: sellOurs },
    { name: `decrementMany of ${BATCH}, 1 client`, batch: BATCH, run: sellMany },
  ];
  return {
    contenders,
    comparisons: [
      {
        name: "time of acquire + release over its floor",
        of: "acquire + release",
        over: FLOOR,
        by: "time",
        aim: aims.pair,
      },
      rate("fenced decrement, 1 client", "plain UPDATE, 1 client", aims.one),
      rate(`fenced decrement, ${CLIENTS} clients`, `plain UPDATE, ${CLIENTS} clients`, aims.many),
      rate(`decrementMany of ${BATCH}, 1 client`, "plain UPDATE, 1 client", 5),
    ],
    async close() {
      await locks.close();
      await ours.close();
    },
  };
}

const FLOOR = "floor: INSERT + DELETE, one connection";

export function rate(of: string, over: string, aim: number): Comparison {
  return { name: `rate of ${of} over ${over}`, of, over, by: "rate", aim };
}
