import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import mysql from "mysql2/promise";
import { NotInstalledError } from "../../infra/servers/binaries.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { reap } from "../../infra/servers/reap.ts";
import { startServer } from "../../infra/servers/start.ts";
import { EVERY_VERSION } from "./matrix.ts";
import { missingIn, orMissing } from "./missing.ts";
import { until } from "./until.ts";

/** A MySQL, MariaDB or PostgreSQL server for tests. Its URL names no test database. */
export interface SqlServer {
  readonly name: string;
  readonly url: string;
}

const run = promisify(execFile);

/** Starts the installed server. If it is MariaDB, `npm run test:long` has MySQL as well. */
export async function startSqlServers(say: (step: string) => void) {
  const server = await orMissing(startInstalled(say), { name: "mariadb", url: "" });
  const isGiven = process.env.LOCKSTEP_TEST_MYSQL !== undefined;
  if (server.about.name === "mysql" || !(EVERY_VERSION || isGiven)) return [server];
  const other = startRealMysql();
  if (other) return [server, await orMissing(other, { name: "mysql", url: "" })];
  say("MySQL is not installed: the tests of SQL run on MariaDB only");
  return [server];
}

/** Starts PostgreSQL without fsync: this server is killed only together with its data. */
export async function startPostgresServers(say: (step: string) => void) {
  const started = startServer("postgres", { onProgress: say, args: ["-c", "fsync=off"] });
  const server = started.then(({ name, url, stop }) => ({ about: { name, url }, stop }));
  return [await orMissing<SqlServer>(server, { name: "postgres", url: "" })];
}

async function startInstalled(say: (step: string) => void) {
  const { name, url, stop } = await startServer("mariadb", { onProgress: say }).catch((error) => {
    if (missingIn(error) === undefined) throw error;
    return startServer("mysql", { onProgress: say }).catch((other) => {
      // Without either, the error names MariaDB.
      throw missingIn(other) === undefined ? other : error;
    });
  });
  const about: SqlServer = { name, url };
  return { about, stop };
}

/** Starts MySQL by a script beside this project, or takes the server that LOCKSTEP_TEST_MYSQL names. */
function startRealMysql() {
  const given = process.env.LOCKSTEP_TEST_MYSQL;
  if (given) return Promise.resolve({ about: { name: "mysql", url: given }, stop: async () => {} });
  const script = fileURLToPath(new URL("../../../shared/servers/real-mysql", import.meta.url));
  if (!existsSync(script) || process.getuid?.() !== 0) return undefined;
  return startByScript(script);
}

async function startByScript(script: string) {
  const port = String(await freePort());
  // The script ignores this argument, which marks its process and its server for `reap`.
  const mark = `--port=${port}`;
  reap(mark);
  // The server runs in a chroot, which does not have the temporary folder of this run.
  const env = { ...process.env, TMPDIR: "/tmp" };
  const { stdout } = await run(script, ["up", port, mark], { env }).catch((error) => {
    throw new NotInstalledError(`MySQL is not installed: ${error.message}`);
  });
  // The script may remove the data while the server still writes to it, so its removal is repeated.
  const isDown = () =>
    run(script, ["down", port]).then(
      () => true,
      () => false,
    );
  const stop = async () => void (await until(isDown, 30_000));
  const url = `${stdout.trim()}/mysql`;
  await allowConnections(url);
  return { about: { name: "mysql", url }, stop };
}

/** The suites run side by side, and each opens many clients. */
async function allowConnections(url: string): Promise<void> {
  const admin = await mysql.createConnection(url);
  await admin.query("SET GLOBAL max_connections = 500");
  await admin.end();
}
