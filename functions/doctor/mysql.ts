import { asText, type Database, sql } from "../../core/database/sql.ts";
import { type Finding, judgeVersion, note, ok, problem } from "./finding.ts";

const VARIABLES = sql`
  SHOW VARIABLES WHERE Variable_name IN (
    'version', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'read_only',
    'transaction_isolation', 'tx_isolation')`;

/** Reads the server's version and its settings of durability and isolation. */
export async function examineMysql(
  database: Database,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const rows = await database.read(VARIABLES, signal);
  const settings = new Map(rows.map((row) => [asText(row.Variable_name), asText(row.Value)]));
  const version = settings.get("version") ?? "";
  const isMaria = /mariadb/i.test(version);
  return [
    judgeVersion(isMaria ? "MariaDB" : "MySQL", version, isMaria ? "10.6" : "8.0"),
    judgeFlush(settings.get("innodb_flush_log_at_trx_commit") ?? "", isMaria),
    ...judgeBinlog(settings),
    judgeIsolation(settings.get("transaction_isolation") ?? settings.get("tx_isolation") ?? ""),
    ...(settings.get("read_only") === "ON"
      ? [problem("role", "the server is read-only: a replica", "use the primary's URL")]
      : []),
  ];
}

/** MariaDB's 3 is an older way to flush each commit. */
function judgeFlush(value: string, isMaria: boolean): Finding {
  const setting = `innodb_flush_log_at_trx_commit = ${value}`;
  if (value === "1" || (isMaria && value === "3"))
    return ok("durability", `${setting}: each commit is on disk`);
  const loss = "a crash loses the last second of commits: locks, fences and sales";
  return problem("durability", `${setting}: ${loss}`, "set innodb_flush_log_at_trx_commit = 1");
}

function judgeBinlog(settings: ReadonlyMap<string, string>): readonly Finding[] {
  const sync = settings.get("sync_binlog");
  if (settings.get("log_bin") !== "ON" || sync === "1") return [];
  const loss = "after a crash, replicas may have commits that the server lacks, or lack some";
  return [note("durability", `sync_binlog = ${sync}: ${loss}`, "set sync_binlog = 1")];
}

function judgeIsolation(level: string): Finding {
  if (level !== "READ-UNCOMMITTED") return ok("isolation", level.toLowerCase().replace("-", " "));
  const risk = "single statements read what is never committed";
  return problem("isolation", `read uncommitted: ${risk}`, "set transaction_isolation higher");
}
