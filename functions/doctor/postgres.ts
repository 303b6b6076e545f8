import { asNumber, asText, type Database, type Row, sql } from "../../core/database/sql.ts";
import { type Finding, judgeVersion, note, ok, problem } from "./finding.ts";

const SETTINGS = sql`
  SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('default_transaction_isolation') AS isolation,
    current_setting('default_transaction_read_only') AS read_only,
    CAST(pg_is_in_recovery() AS TEXT) AS is_standby,
    current_setting('synchronous_standby_names') AS standby_names,
    (SELECT COUNT(*) FROM pg_stat_replication) AS standbys`;

/** Reads the server's version, its settings of durability, isolation and replication, and whether it is a standby. */
export async function examinePostgres(
  database: Database,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const [row = {}] = await database.read(SETTINGS, signal);
  const standby = problem("role", "the server is read-only: a standby", "use the primary's URL");
  const readOnly = "default_transaction_read_only is on: no lock can be taken";
  const writable = "ALTER ROLE … SET default_transaction_read_only = off";
  return [
    judgeVersion("PostgreSQL", asText(row.version), "13"),
    judgeDurability(row),
    // Of Lockstep's transactions. Those of the user have the server's default.
    ok("isolation", `read committed; the default of your own is ${asText(row.isolation)}`),
    row.is_standby === "true" ? standby : judgeReplication(row),
    ...(asText(row.read_only) === "on" ? [problem("role", readOnly, writable)] : []),
  ];
}

function judgeDurability(row: Row): Finding {
  const names = ["fsync", "full_page_writes", "synchronous_commit"];
  const off = names.filter((name) => asText(row[name]) === "off");
  if (off.length === 0) return ok("durability", "fsync and synchronous_commit are on");
  const loss = "a crash loses commits that were acknowledged: locks, fences and sales";
  const cures = off.map((name) => `${name} = on`);
  return problem("durability", `${off.join(", ")} off: ${loss}`, `set ${cures.join(", ")}`);
}

function judgeReplication({ synchronous_commit, standby_names, standbys }: Row): Finding {
  const commit = asText(synchronous_commit);
  const names = asText(standby_names);
  const waits = names !== "" && commit !== "off" && commit !== "local";
  if (waits && asNumber(standbys) === 0) {
    const hangs = `commits wait for standbys, ${names}, and none is connected: no commit ends`;
    return problem("replication", hangs, "start a standby, or reset synchronous_standby_names");
  }
  if (waits) return ok("replication", `commits wait for standbys: ${names}`);
  const setting =
    names === "" ? "synchronous_standby_names is empty" : `synchronous_commit = ${commit}`;
  if (asNumber(standbys) === 0) return ok("replication", `${setting}; no standby is connected`);
  const loss = "a failover may lose the last commits: locks, fences and sales";
  const cure = names === "" ? "set synchronous_standby_names" : "set synchronous_commit = on";
  return note("replication", `${setting}: ${loss}`, cure);
}
