import { randomUUID } from "node:crypto";
import type { Database } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { BATCH, SELL_ONE, SKU } from "./hot-sku/sales.ts";
import { comparedSellers, startSellers } from "./hot-sku/sellers.ts";
import type { Comparison, Contender } from "./measure.ts";
import { type RawSql, rawSql } from "./raw-sql.ts";
import type { Contest } from "./suite.ts";

/** The number of clients that sell at the same time, in one process. */
export const CLIENTS = 16;

export interface SqlContest {
  /** A migrated database without stock. */
  readonly ours: Database;

  /** The store's URL of this database. */
  readonly url: string;

  /** The type of a key's column. */
  readonly text: string;

  /** The database's own lock, by name, and the statements that take it and release it. */
  readonly ownLock?: { readonly name: string; readonly take: string; readonly release: string };

  /** The aims of a pair over its floor, and of a fenced decrement at one client and at many, unless the database has one writer. */
  readonly aims: { readonly pair: number; readonly one: number; readonly many?: number };
}

/** Locks and stock of a SQL database beside raw statements. `close` closes `ours`. */
export async function compareSql({
  ours,
  url,
  text,
  ownLock,
  aims,
}: SqlContest): Promise<Omit<Contest, "server">> {
  const [locks, stock] = [sqlLocks(ours), sqlInventory(ours)];
  const raw = await Promise.all(Array.from({ length: CLIENTS }, () => rawSql(url)));
  const [first] = raw as [RawSql, ...RawSql[]];
  await first.query("CREATE TABLE floor (id INT PRIMARY KEY, value INT)");
  await first.query(`CREATE TABLE hot (sku ${text} PRIMARY KEY, quantity BIGINT NOT NULL)`);
  await first.query(`INSERT INTO hot VALUES ('${SKU}', 1000000000)`);
  await stock.set({ sku: SKU, quantity: 1_000_000, operationId: randomUUID() });
  const { fence } = await locks.lock(stockLock(SKU), { ttl: 60_000, wait: 0 });
  const sellers = await startSellers({ url, database: ours, stock, fence });

  const pair = async () => {
    await (await locks.lock("bench", { ttl: 60_000, wait: 0 })).unlock();
  };
  // The first pair may also open connections.
  await pair();
  const sameRaw = await first.record(pair);
  const sell = async (client: number) => raw[client]?.query(SELL_ONE);
  const order = () => ({ operationId: randomUUID(), quantity: 1 });
  const sellOurs = () => stock.decrement({ sku: SKU, fence, ...order() });
  const sellMany = () =>
    stock.decrementMany({ sku: SKU, fence, orders: Array.from({ length: BATCH }, order) });
  const contenders: Contender[] = [
    {
      name: FLOOR,
      async run() {
        await first.query("INSERT INTO floor VALUES (1, 1)");
        await first.query("DELETE FROM floor WHERE id = 1");
      },
    },
    { name: "acquire + release", run: pair },
    { name: SAME_RAW, run: sameRaw },
    ...(ownLock
      ? [
          {
            name: ownLock.name,
            async run() {
              await first.query(ownLock.take);
              await first.query(ownLock.release);
            },
          },
        ]
      : []),
    { name: plain(1), run: sell },
    { name: fenced(1), run: sellOurs },
    ...(aims.many === undefined
      ? []
      : [
          { name: plain(CLIENTS), clients: CLIENTS, run: sell },
          { name: fenced(CLIENTS), clients: CLIENTS, run: sellOurs },
        ]),
    { name: MANY, batch: BATCH, run: sellMany },
    ...sellers.contenders,
  ];
  return {
    contenders,
    comparisons: [
      pairOver(FLOOR, "its floor", aims.pair),
      pairOver(SAME_RAW, "the same statements sent raw", 1.15),
      rate(fenced(1), plain(1), aims.one),
      ...(aims.many === undefined ? [] : [rate(fenced(CLIENTS), plain(CLIENTS), aims.many)]),
      rate(MANY, plain(1), 5),
      ...comparedSellers(plain(1)),
    ],
    async close() {
      await sellers.close();
      await locks.close();
      await ours.close();
      await Promise.all(raw.map((connection) => connection.close()));
    },
  };
}

const FLOOR = "floor: INSERT + DELETE, one connection";
const SAME_RAW = "statements of acquire + release, sent raw";
const MANY = `decrementMany of ${BATCH}, 1 client`;

function plain(clients: number): string {
  return `plain UPDATE, ${clientsOf(clients)}`;
}

function fenced(clients: number): string {
  return `fenced decrement, ${clientsOf(clients)}`;
}

export function clientsOf(count: number): string {
  return count === 1 ? "1 client" : `${count} clients`;
}

function pairOver(over: string, what: string, aim: number): Comparison {
  const of = "acquire + release";
  return { name: `time of ${of} over ${what}`, of, over, by: "time", aim };
}

export function rate(of: string, over: string, aim: number): Comparison {
  return { name: `rate of ${of} over ${over}`, of, over, by: "rate", aim };
}
