import { randomUUID } from "node:crypto";
import { mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { NotInstalledError } from "../../infra/servers/binaries.ts";
import { startServer } from "../../infra/servers/start.ts";
import { type RawSql, rawSql } from "./raw-sql.ts";
import { CLIENTS, compareSql } from "./sql.ts";
import type { Contest, Suite } from "./suite.ts";

/** Locks and stock on MariaDB, compared with raw statements. */
export const mariadbSuite: Suite = async (onProgress) => {
  const { url, stop } = await startServer("mariadb", { onProgress });
  return compareOn(url, 1.4, stop);
};

/** The same on MySQL. Without a MySQL server, nothing is measured. LOCKSTEP_BENCH_MYSQL names a running one. */
export const mysqlSuite: Suite = async (onProgress) => {
  const given = process.env.LOCKSTEP_BENCH_MYSQL;
  if (given) return compareOn(given, 1.5, async () => {});
  try {
    const { url, stop } = await startServer("mysql", { onProgress });
    return await compareOn(url, 1.5, stop);
  } catch (error) {
    if (!(error instanceof NotInstalledError)) throw error;
    const notes = [`not measured: ${error.message}`];
    return { server: "", notes, contenders: [], comparisons: [], close: async () => {} };
  }
};

/** Compares in a database of its own on the server of the URL. */
async function compareOn(url: string, pair: number, stop: () => Promise<void>): Promise<Contest> {
  const { hostname: host, port, username: user } = new URL(url);
  const database = `bench_${randomUUID().replaceAll("-", "")}`;
  const admin = await rawSql(url);
  await admin.query(`CREATE DATABASE ${database}`);
  const ours = mysqlDatabase({ host, port: Number(port), user, database, connections: CLIENTS });
  await migrate(ours);
  const contest = await compareSql({
    ours,
    url: `mysql://${user}@${host}:${port}/${database}`,
    text: "VARCHAR(255)",
    ownLock: {
      name: "GET_LOCK + RELEASE_LOCK",
      take: "SELECT GET_LOCK('bench', 0)",
      release: "SELECT RELEASE_LOCK('bench')",
    },
    aims: { pair, one: 0.6, many: 0.5 },
  });
  return {
    ...contest,
    server: await versionOf(admin),
    async close() {
      await contest.close();
      await admin.query(`DROP DATABASE ${database}`);
      await admin.close();
      await stop();
    },
  };
}

async function versionOf(server: RawSql): Promise<string> {
  const [[row]] = (await server.query("SELECT VERSION() AS version")) as [{ version: string }[]];
  return row?.version ?? "";
}
