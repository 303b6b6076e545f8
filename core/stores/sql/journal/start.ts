import {
  asBigInt,
  asText,
  type Database,
  type Dialect,
  list,
  type Row,
  type Sql,
  type SqlResult,
  sql,
} from "../../../database/sql.ts";
import { StaleRunError } from "../../../journal/journal.ts";
import type { NewRun, RunKey, StartedRun } from "../../../journal/runs.ts";
import { splitRuns } from "../../../journal/split-runs.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import type { Millis } from "../../../lock/time.ts";
import { addBacklog, type Backlog, backlogOf } from "./backlogs.ts";
import type { SqlJournalContext } from "./context.ts";
import { deleteExpiredRun } from "./purge.ts";
import { isHeld, isKept, runState, timeIn, toParent, toRunState } from "./rows.ts";

/** The most runs in one statement: Workers allow a text of 100,000 bytes, and 25,000 operations. */
const RUNS_AT_ONCE = 100;

/** The most characters of their inputs: on Workers, each value of a statement is searched for in the text of all. */
const INPUTS_AT_ONCE = 20_000;

/** Creates the runs that do not exist and reads all of them, in one transaction, which may be repeated. */
export function startRuns(
  { database, backlogs }: SqlJournalContext,
  runs: readonly NewRun[],
  parent: RunKey | undefined,
  signal: AbortSignal | undefined,
): Promise<readonly StartedRun[]> {
  const { dialect, address } = database;
  const read = sql`
    SELECT run_id, workflow, input_hash, parent_run, parent_signal, ${runState(dialect.now)}
    FROM lockstep_run
    WHERE run_id IN (${list(runs.map(({ runId }) => runId))}) AND ${isKept(dialect.now)}`;
  const newBacklogs = backlogsOf(runs).filter((backlog) => !backlogs.hasAdded(backlog));
  // Concurrent calls insert in the same order.
  const sorted = runs.toSorted((a, b) => (a.runId < b.runId ? -1 : 1));
  return retryUntilKnown(address, "runs were started", signal, async (limit) => {
    const lists = splitRuns(sorted, RUNS_AT_ONCE, INPUTS_AT_ONCE);
    const inserts = lists.map((some) => insertRuns(dialect, some));
    const adds = newBacklogs.map((backlog) => addBacklog(dialect, backlog));
    const statements = [...inserts, read, ...adds];
    const results = await (parent
      ? commitHeld(database, parent, statements, limit)
      : database.batch(statements, limit));
    const found = results[inserts.length];
    for (const backlog of newBacklogs) backlogs.added(backlog);
    const rows = new Map(found?.rows.map((row) => [asText(row.run_id), row]));
    const expired = runs.filter(({ runId }) => !rows.has(runId));
    // Their deletion makes room for new runs.
    for (const { runId } of expired) await deleteExpiredRun(database, runId, limit);
    if (expired.length > 0) return undefined;
    return runs.map((run) => toStartedRun(run, rows.get(run.runId) as Row));
  });
}

/** Runs the statements in a transaction during which no other process claims the run. */
function commitHeld(
  database: Database,
  run: RunKey,
  statements: readonly Sql[],
  limit: AbortSignal,
): Promise<readonly SqlResult[]> {
  const { forShare } = database.dialect;
  const lock = sql`SELECT run_id FROM lockstep_run WHERE ${isHeld(run)} ${forShare}`;
  return database.transaction(async (tx) => {
    const [held] = await tx.batch([lock]);
    if (held?.rows.length === 0) throw new StaleRunError(run);
    return tx.commit(statements);
  }, limit);
}

function toStartedRun({ workflow, inputHash }: NewRun, row: Row): StartedRun {
  const isSame = asText(row.workflow) === workflow && asText(row.input_hash) === inputHash;
  return isSame ? { parent: toParent(row), ...toRunState(row) } : { kind: "conflict" };
}

function backlogsOf(runs: readonly NewRun[]): readonly Backlog[] {
  const backlogs = runs.map(backlogOf);
  return [...new Map(backlogs.map((backlog) => [JSON.stringify(backlog), backlog])).values()];
}

/** The claim of a run that is created as a claimed one. */
export interface FirstClaim {
  readonly mark: string;
  readonly ttl: Millis;

  /** Of the run's epoch. */
  readonly salt: bigint;
}

/** Inserts runs that are due or, with `first`, claimed; except for those whose id exists. */
export function insertRuns(
  { now, onConflict }: Dialect,
  runs: readonly NewRun[],
  first?: FirstClaim,
): Sql {
  const status = first ? "running" : "parked";
  const dueAt = first ? timeIn(now, first.ttl) : sql`0`;
  const rows = runs.map((run) => {
    const { runId, workflow, version, input, inputHash, owner, parent, detached } = run;
    const { queue, key, level } = backlogOf(run);
    return sql`(
        ${runId}, ${workflow}, ${version}, ${input}, ${inputHash}, ${parent?.runId ?? null},
        ${parent?.signal ?? null}, ${detached ? 1 : 0}, ${queue}, ${key}, ${-level}, ${status}, ${firstEpoch(now, first?.salt)},
        ${owner}, ${first?.mark ?? ""}, ${dueAt}, 0, 0, 0, 0, ${now}, ${now})`;
  });
  return sql`
    INSERT INTO lockstep_run (
      run_id, workflow, version, input, input_hash, parent_run, parent_signal, detached, queue,
      turn_key, priority, status, epoch, owner, claimed_by, due_at, crashes, blocks, cancelled, signals,
      started_at, changed_at)
    VALUES ${list(rows)}
    ${onConflict("run_id")} run_id = lockstep_run.run_id`;
}

/** The first epoch of a run that is created at this time: no run with the same id had it before. */
export function firstEpoch(at: Sql, salt = epochSalt()): Sql {
  return sql`${at} * 1000 + ${salt}`;
}

/** Whether the run has the epoch with which it was created: no claim has raised it. */
export function hasFirstEpoch({ epoch, started_at: startedAt }: Row, salt: bigint): boolean {
  return asBigInt(epoch) === asBigInt(startedAt) * 1_000n + salt;
}

/** A bigint: with a number, SQLite would round the sum. */
export function epochSalt(): bigint {
  const [random = 0] = crypto.getRandomValues(new Uint32Array(1));
  return BigInt(random % 1_000_000);
}
