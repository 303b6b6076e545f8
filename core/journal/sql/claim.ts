import {
  asText,
  type Database,
  type Dialect,
  type Row,
  type Sql,
  sql,
} from "../../database/sql.ts";
import { quote } from "../../lock/errors.ts";
import { insist } from "../../lock/insist.ts";
import type { Claim, Claimed, Missing, ParkReason, Possession, Take } from "../journal.ts";
import { forget } from "./purge.ts";
import {
  INFO,
  isKept,
  micros,
  RECORD,
  SIGNAL,
  toDate,
  toEnded,
  toInfo,
  toMillis,
  toParent,
  toRecord,
  toSignal,
} from "./rows.ts";

/**
 * Makes the run if need be, and takes it if it is due, in one packet.
 *
 * The call's mark makes it safe to send it again: whoever took the run last does not take it once more, however
 * late one of its requests arrives.
 */
export function claimRun(
  database: Database,
  claim: Claim,
  signal: AbortSignal | undefined,
): Promise<Claimed> {
  const { runId, workflow, inputHash } = claim;
  const { dialect, address } = database;
  const mark = crypto.randomUUID();
  const isSame = sql`workflow = ${workflow} AND input_hash = ${inputHash}`;
  return insist(address, `run ${quote(runId)} was claimed`, signal, async (limit) => {
    const statements = [begin(dialect, claim), ...take(dialect, claim, mark, isSame)];
    const results = await database.packet(statements, limit);
    const [run = [], records = [], signals = []] = results.slice(2).map(({ rows }) => rows);
    const [row] = run;
    if (row === undefined) {
      // There is one whose time is over; it makes room for another one.
      await forget(database, runId, limit);
      return undefined;
    }
    const isOther = asText(row.workflow) !== workflow || asText(row.input_hash) !== inputHash;
    return isOther ? { kind: "conflict" } : toClaimed({ row, records, signals });
  });
}

/** Takes a run that is there, in one packet. */
export function takeRun(
  database: Database,
  wanted: Take,
  signal: AbortSignal | undefined,
): Promise<Claimed | Missing> {
  const { dialect, address } = database;
  const mark = crypto.randomUUID();
  const what = `run ${quote(wanted.runId)} was taken`;
  return insist(address, what, signal, async (limit) => {
    const results = await database.packet(take(dialect, wanted, mark, sql`1 = 1`), limit);
    const [run = [], records = [], signals = []] = results.slice(1).map(({ rows }) => rows);
    const [row] = run;
    return row ? toClaimed({ row, records, signals }) : { kind: "missing" };
  });
}

/** A run that is due, unless there is one of this id. */
function begin({ now, onConflict }: Dialect, claim: Claim): Sql {
  const { runId, workflow, version, input, inputHash, owner, parent } = claim;
  const [salt = 0] = crypto.getRandomValues(new Uint32Array(1));
  const epoch = sql`${now} * 1000 + ${salt % 1_000_000}`;
  return sql`
    INSERT INTO lockstep_run (
      run_id, workflow, version, input, input_hash, parent_run, parent_signal, status, epoch, owner,
      claimed_by, due_at, crashes, cancelled, signals, started_at, changed_at)
    VALUES (
      ${runId}, ${workflow}, ${version}, ${input}, ${inputHash}, ${parent?.runId ?? null},
      ${parent?.signal ?? null}, 'parked', ${epoch}, ${owner}, '', 0, 0, 0, 0, ${now}, ${now})
    ${onConflict("run_id")} run_id = lockstep_run.run_id`;
}

/** Takes the run if it is due, and reads it; with all that belongs to it if it is ours. */
function take(
  { now }: Dialect,
  { runId, owner, ttl }: Take,
  mark: string,
  condition: Sql,
): readonly Sql[] {
  const ours = sql`r.run_id = ${runId} AND r.claimed_by = ${mark} AND r.status = 'running'`;
  return [
    // crashes first: it still needs the old status, and MySQL assigns from left to right.
    sql`
      UPDATE lockstep_run
      SET crashes = CASE WHEN status = 'running' THEN crashes + 1 ELSE 0 END,
        status = 'running', epoch = epoch + 1, owner = ${owner}, claimed_by = ${mark}, reason = NULL,
        due_at = ${now} + ${micros(ttl)}, changed_at = ${now},
        cancelled = CASE WHEN cancelled = 1 THEN 2 ELSE cancelled END
      WHERE run_id = ${runId} AND due_at <= ${now} AND claimed_by <> ${mark} AND ${condition}`,
    sql`
      SELECT ${INFO}, input_hash, parent_run, parent_signal, value, compensated,
        CASE WHEN claimed_by = ${mark} THEN input END AS input,
        CASE WHEN claimed_by = ${mark} THEN 1 ELSE 0 END AS ours, ${now} AS now
      FROM lockstep_run WHERE run_id = ${runId} AND ${isKept(now)}`,
    sql`
      SELECT ${RECORD} FROM lockstep_run AS r JOIN lockstep_step AS s ON s.run_id = r.run_id
      WHERE ${ours} ORDER BY s.at, s.step_key`,
    sql`
      SELECT ${SIGNAL} FROM lockstep_run AS r JOIN lockstep_signal AS s ON s.run_id = r.run_id
      WHERE ${ours} ORDER BY s.seq`,
  ];
}

interface Found {
  readonly row: Row;
  readonly records: readonly Row[];
  readonly signals: readonly Row[];
}

function toClaimed(found: Found): Claimed {
  const { row } = found;
  const ending = toEnded(row);
  if (ending) return { kind: "ended", ending };
  const { status, reason } = toInfo(row);
  const dueIn =
    row.due_at == null
      ? Number.POSITIVE_INFINITY
      : Math.max(0, toMillis(row.due_at) - toMillis(row.now));
  if (status === "parked") {
    return { kind: "parked", reason: reason as ParkReason, wakeIn: dueIn };
  }
  const isOurs = Number(row.ours) === 1;
  return isOurs ? { kind: "claimed", ...toPossession(found) } : { kind: "busy", retryIn: dueIn };
}

function toPossession({ row, records, signals }: Found): Possession {
  const { epoch, workflow, version, crashes, cancelled, startedAt } = toInfo(row);
  return {
    ...{ epoch, workflow, version, crashes, cancelled, startedAt },
    input: asText(row.input),
    parent: toParent(row),
    records: records.map(toRecord),
    signals: signals.map(toSignal),
    now: toDate(row.now),
  };
}
