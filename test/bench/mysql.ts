import { randomUUID } from "node:crypto";
import mysql, { type Connection } from "mysql2/promise";
import { stockLock } from "../../core/inventory/inventory.ts";
import { mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { startServer } from "../../infra/servers/start.ts";
import type { Suite } from "./suite.ts";

const CLIENTS = 16;
const BATCH = 200;

/** Locks and stock on MySQL, compared with raw statements. LOCKSTEP_BENCH_MYSQL names another server. */
export const mysqlSuite: Suite = async (onProgress) => {
  const given = process.env.LOCKSTEP_BENCH_MYSQL;
  const server = given ? undefined : await startServer("mariadb", { onProgress });
  const url = new URL(server?.url ?? given ?? "");
  const login = { host: url.hostname, port: Number(url.port), user: url.username };
  const admin = await mysql.createConnection(login);
  const database = `bench_${randomUUID().replaceAll("-", "")}`;
  await admin.query(`CREATE DATABASE ${database}`);

  const raw = await Promise.all(
    Array.from({ length: CLIENTS }, () => mysql.createConnection({ ...login, database })),
  );
  const [one] = raw as [Connection, ...Connection[]];
  const ours = mysqlDatabase({ ...login, database, connections: CLIENTS });
  await migrate(ours);
  const locks = sqlLocks(ours);
  const stock = sqlInventory(ours);
  const sku = "teapot";
  await one.query("CREATE TABLE floor (id INT PRIMARY KEY, value INT)");
  await one.query("CREATE TABLE hot (sku VARCHAR(255) PRIMARY KEY, quantity BIGINT NOT NULL)");
  await one.query(`INSERT INTO hot VALUES ('${sku}', 1000000000)`);
  await stock.set({ sku, quantity: 1_000_000, operationId: randomUUID() });
  const lock = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 0 });

  const sell = (client: number) =>
    raw[client]?.query(
      `UPDATE hot SET quantity = quantity - 1 WHERE sku = '${sku}' AND quantity >= 1`,
    ) ?? Promise.resolve();
  const sellOurs = () =>
    stock.decrement({ sku, quantity: 1, operationId: randomUUID(), fence: lock.fence });
  const sellMany = () =>
    stock.decrementMany({
      sku,
      fence: lock.fence,
      orders: Array.from({ length: BATCH }, () => ({ operationId: randomUUID(), quantity: 1 })),
    });

  const [versions] = await one.query("SELECT VERSION() AS version");
  return {
    server: String((versions as { version: string }[])[0]?.version),
    contenders: [
      {
        name: "floor: INSERT + DELETE, one connection",
        async run() {
          await one.query("INSERT INTO floor VALUES (1, 1)");
          await one.query("DELETE FROM floor WHERE id = 1");
        },
      },
      {
        name: "acquire + release",
        async run() {
          await (await locks.lock("bench", { ttl: 60_000, wait: 0 })).unlock();
        },
      },
      {
        name: "GET_LOCK + RELEASE_LOCK",
        async run() {
          await one.query("SELECT GET_LOCK('bench', 0)");
          await one.query("SELECT RELEASE_LOCK('bench')");
        },
      },
      { name: "plain UPDATE, 1 client", run: sell },
      { name: `plain UPDATE, ${CLIENTS} clients`, clients: CLIENTS, run: sell },
      { name: "fenced decrement, 1 client", run: sellOurs },
      { name: `fenced decrement, ${CLIENTS} clients`, clients: CLIENTS, run: sellOurs },
      { name: `decrementMany of ${BATCH}, 1 client`, batch: BATCH, run: sellMany },
    ],
    comparisons: [
      {
        name: "time of acquire + release over its floor",
        of: "acquire + release",
        over: "floor: INSERT + DELETE, one connection",
        by: "time",
        aim: 1.5,
      },
      {
        name: "rate of fenced decrement over plain UPDATE, 1 client",
        of: "fenced decrement, 1 client",
        over: "plain UPDATE, 1 client",
        by: "rate",
        aim: 0.5,
      },
      {
        name: `rate of fenced decrement over plain UPDATE, ${CLIENTS} clients`,
        of: `fenced decrement, ${CLIENTS} clients`,
        over: `plain UPDATE, ${CLIENTS} clients`,
        by: "rate",
        aim: 0.5,
      },
      {
        name: "rate of decrementMany over plain UPDATE, 1 client each",
        of: `decrementMany of ${BATCH}, 1 client`,
        over: "plain UPDATE, 1 client",
        by: "rate",
        aim: 5,
      },
    ],
    async close() {
      await locks.close();
      await ours.close();
      await Promise.all(raw.map((connection) => connection.end()));
      await admin.query(`DROP DATABASE ${database}`);
      await admin.end();
      await server?.stop();
    },
  };
};
