import { randomUUID } from "node:crypto";
import mysql from "mysql2/promise";
import { mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { startServer } from "../../infra/servers/start.ts";
import { CLIENTS, compareSql } from "./sql.ts";
import type { Suite } from "./suite.ts";

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
  const ours = mysqlDatabase({ ...login, database, connections: CLIENTS });
  await migrate(ours);
  const contest = await compareSql({
    ours,
    text: "VARCHAR(255)",
    query: async (text, client = 0) => raw[client]?.query(text),
    ownLock: {
      name: "GET_LOCK + RELEASE_LOCK",
      take: "SELECT GET_LOCK('bench', 0)",
      release: "SELECT RELEASE_LOCK('bench')",
    },
    aims: { pair: 1.5, one: 0.5, many: 0.5 },
  });
  const [versions] = await admin.query("SELECT VERSION() AS version");
  return {
    ...contest,
    server: String((versions as { version: string }[])[0]?.version),
    async close() {
      await contest.close();
      await Promise.all(raw.map((connection) => connection.end()));
      await admin.query(`DROP DATABASE ${database}`);
      await admin.end();
      await server?.stop();
    },
  };
};
