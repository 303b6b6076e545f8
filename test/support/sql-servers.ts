import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { freePort } from "../../infra/servers/processes.ts";
import { reap } from "../../infra/servers/reap.ts";
import { startServer } from "../../infra/servers/start.ts";
import { until } from "./until.ts";

/** A MySQL or MariaDB server that the tests may use; its URL names no database of theirs. */
export interface SqlServer {
  readonly name: string;
  readonly url: string;
}

const run = promisify(execFile);

export async function startSqlServers(say: (step: string) => void) {
  const server = await startServer("mysql", { onProgress: say });
  const flavour = server.version.includes("MariaDB") ? "mariadb" : "mysql";
  const servers: SqlServer[] = [{ name: flavour, url: server.url }];
  const other = flavour === "mariadb" ? await startRealMysql() : undefined;
  if (other) servers.push({ name: other.name, url: other.url });
  else if (flavour === "mariadb")
    say("no MySQL here besides MariaDB: its tests run on MariaDB only");
  const stop = async () => {
    await server.stop();
    await other?.stop();
  };
  return { servers, stop };
}

/** MySQL itself, where a script beside this project or LOCKSTEP_TEST_MYSQL brings one. */
async function startRealMysql(): Promise<(SqlServer & { stop(): Promise<void> }) | undefined> {
  const given = process.env.LOCKSTEP_TEST_MYSQL;
  if (given) return { name: "mysql", url: given, stop: async () => {} };
  const script = fileURLToPath(new URL("../../../shared/servers/real-mysql", import.meta.url));
  if (!existsSync(script) || process.getuid?.() !== 0) return undefined;
  const port = String(await freePort());
  // Its folder is not ours to know. The script ignores this argument, and is found by it like its server.
  const mark = `--port=${port}`;
  reap(mark);
  const { stdout } = await run(script, ["up", port, mark]);
  // The script removes the data while the server may still be writing some of it.
  const isDown = () =>
    run(script, ["down", port]).then(
      () => true,
      () => false,
    );
  const stop = async () => void (await until(isDown, 30_000));
  return { name: "mysql", url: `${stdout.trim()}/mysql`, stop };
}
