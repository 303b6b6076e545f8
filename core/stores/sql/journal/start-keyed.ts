import {
  asNumber,
  asText,
  type Database,
  type Dialect,
  type Row,
  sql,
} from "../../../database/sql.ts";
import {
  isOpen,
  type KeyedRun,
  type KeyedStart,
  type NewRun,
  type RunStatus,
} from "../../../journal/runs.ts";
import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { addBacklog, backlogOf } from "./backlogs.ts";
import { runState, timeIn, toRunState } from "./rows.ts";
import { insertRuns } from "./start.ts";

/**
 * Creates the run, or finds the one that is there, in one transaction. The row of the key orders concurrent starts.
 *
 * A repetition after a lost answer finds the run that it has created.
 */
export function startKeyed(
  database: Database,
  run: NewRun,
  { key, quiet }: KeyedStart,
  signal: AbortSignal | undefined,
): Promise<KeyedRun> {
  const { dialect, address } = database;
  const { workflow, runId } = run;
  const isKey = sql`workflow = ${workflow} AND start_key = ${key}`;
  const lock = sql`
    INSERT INTO lockstep_start (workflow, start_key, run_id) VALUES (${workflow}, ${key}, '')
    ${dialect.onConflict("workflow, start_key")} run_id = lockstep_start.run_id`;
  const state = sql`run_id, cancelled, ${runState(dialect.now)}`;
  const last = sql`SELECT run_id FROM lockstep_start WHERE ${isKey}`;
  const what = `a run of ${quote(workflow)} was started`;
  return retryUntilKnown(address, what, signal, (limit) =>
    database.transaction(async (tx) => {
      const [, found] = await tx.batch([lock, last]);
      const known = asText(found?.rows[0]?.run_id);
      const [current] = await tx.batch([
        sql`SELECT ${state} FROM lockstep_run WHERE run_id = ${known} ${dialect.forUpdate}`,
      ]);
      const [row] = current?.rows ?? [];
      if (row && known === runId) return toStarted(row);
      const isSame = row !== undefined && isReusable(row, quiet);
      if (isSame && quiet === undefined) return toStarted(row);
      const backlog = addBacklog(dialect, backlogOf(run));
      const change = isSame
        ? renew(dialect, known, run, quiet)
        : [
            insertRuns(dialect, [run]),
            ...(quiet === undefined ? [] : [wait(dialect, runId, quiet)]),
            sql`UPDATE lockstep_start SET run_id = ${runId} WHERE ${isKey}`,
          ];
      const next = isSame ? known : runId;
      const results = await tx.commit([
        ...change,
        backlog,
        sql`SELECT ${state} FROM lockstep_run WHERE run_id = ${next}`,
      ]);
      return toStarted(results.at(-1)?.rows[0] as Row);
    }, limit),
  );
}

/** Whether the start takes this run in place of a new one. */
function isReusable(row: Row, quiet: number | undefined): boolean {
  const status = asText(row.status) as RunStatus;
  if (quiet === undefined) return isOpen(status);
  return status === "parked" && isDebounced(row) && !isCancelled(row);
}

function isDebounced({ reason }: Row): boolean {
  return reason != null && asText(reason) === "debounce";
}

function isCancelled({ cancelled }: Row): boolean {
  return asNumber(cancelled) > 0;
}

/** Gives a run that waits for its first execution the new input and a new wait. */
function renew({ now }: Dialect, runId: string, run: NewRun, quiet = 0) {
  const { version, input, inputHash } = run;
  const { queue, key, level } = backlogOf(run);
  return [
    sql`
      UPDATE lockstep_run
      SET version = ${version}, input = ${input}, input_hash = ${inputHash}, queue = ${queue},
        turn_key = ${key}, priority = ${-level}, due_at = ${timeIn(now, quiet)}, changed_at = ${now}
      WHERE run_id = ${runId} AND status = 'parked' AND reason = 'debounce'`,
  ];
}

/** Lets a new run wait. */
function wait({ now }: Dialect, runId: string, quiet: number) {
  return sql`
    UPDATE lockstep_run SET reason = 'debounce', due_at = ${timeIn(now, quiet)}
    WHERE run_id = ${runId}`;
}

function toStarted(row: Row): KeyedRun {
  return { runId: asText(row.run_id), cancelled: isCancelled(row), ...toRunState(row) };
}
