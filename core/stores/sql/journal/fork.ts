import {
  asNumber,
  asText,
  type Database,
  type Dialect,
  list,
  type Sql,
  sql,
  type Transaction,
} from "../../../database/sql.ts";
import type { ForkRequest } from "../../../journal/changes.ts";
import type { Journal } from "../../../journal/journal.ts";
import type { RunKey } from "../../../journal/runs.ts";
import { supersededPrefix } from "../../../journal/superseded.ts";
import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { CHUNK, chunksOf } from "../chunks.ts";
import { deleteExpiredRun } from "./purge.ts";
import { isKept, partOf } from "./rows.ts";
import { firstEpoch } from "./start.ts";

type ForkAnswer = Awaited<ReturnType<Journal["fork"]>>;

/** Creates the fork and copies its records in one transaction. A repetition after a lost answer finds them. */
export function fork(
  database: Database,
  origin: RunKey,
  request: ForkRequest,
): Promise<ForkAnswer> {
  const { runId } = request;
  const what = `run ${quote(origin.runId)} was forked to ${quote(runId)}`;
  return retryUntilKnown(database.address, what, undefined, async (limit) => {
    // Its deletion makes room for the fork.
    await deleteExpiredRun(database, runId, limit);
    return database.transaction((tx) => forkIn(tx, database.dialect, origin, request), limit);
  });
}

async function forkIn(
  tx: Transaction,
  dialect: Dialect,
  origin: RunKey,
  request: ForkRequest,
): Promise<ForkAnswer> {
  const { runId, step, mark } = request;
  const lockOrigin = sql`
    SELECT run_id FROM lockstep_run WHERE run_id = ${origin.runId} ${dialect.forShare}`;
  const read = sql`
    SELECT origin_run, origin_step, (
      SELECT COUNT(*) FROM lockstep_step AS s WHERE s.run_id = ${runId} AND s.step_key = ${mark.key}
    ) AS marks
    FROM lockstep_run WHERE run_id = ${runId}`;
  const results = await tx.batch([lockOrigin, insertFork(dialect, origin, request), read]);
  const row = results.at(-1)?.rows[0];
  if (row === undefined) return "changed";
  const isSame =
    row.origin_run != null &&
    asText(row.origin_run) === origin.runId &&
    asText(row.origin_step) === step;
  if (!isSame) return "conflict";
  if (asNumber(row.marks) === 0) await tx.commit(copies(dialect, origin, request));
  return "forked";
}

/** The backlog of the fork exists: it is the one of its origin. */
function insertFork(
  { now, onConflict }: Dialect,
  origin: RunKey,
  { runId, owner, step, signals }: ForkRequest,
): Sql {
  return sql`
    INSERT INTO lockstep_run (
      run_id, part, workflow, version, input, input_hash, origin_run, origin_step, queue, turn_key,
      priority, status, epoch, owner, claimed_by, due_at, crashes, blocks, cancelled, signals,
      started_at, changed_at)
    SELECT ${runId}, o.part, o.workflow, o.version, o.input, o.input_hash, o.run_id, ${step}, o.queue,
      o.turn_key, o.priority, 'parked', ${firstEpoch(now)}, ${owner}, '', ${now}, 0, 0, 0,
      ${signals.length}, ${now}, ${now}
    FROM lockstep_run AS o
    WHERE o.run_id = ${origin.runId} AND o.epoch = ${origin.epoch} AND ${isKept(now)}
    ${onConflict("run_id")} run_id = lockstep_run.run_id`;
}

function copies(
  dialect: Dialect,
  origin: RunKey,
  { runId, keep, supersede, signals, mark }: ForkRequest,
): readonly Sql[] {
  const renamed = sql`CONCAT(${supersededPrefix(origin.epoch)}, s.step_key)`;
  return [
    ...chunksOf(keep).map((keys) => copyRecords(origin, runId, keys, sql`s.step_key`)),
    ...chunksOf(supersede).map((keys) => copyRecords(origin, runId, keys, renamed)),
    ...chunksOf([...keep, ...supersede]).map((keys) => copyValues(origin, runId, keys)),
    insertMark(dialect, origin, runId, mark),
    ...chunksOf(signals).map((numbers, i) => copySignals(origin, runId, numbers, i)),
  ];
}

function copyRecords(origin: RunKey, runId: string, keys: readonly string[], key: Sql): Sql {
  return sql`
    INSERT INTO lockstep_step (
      run_id, part, step_key, epoch, kind, outcome, attempt, value, value_id, value_bytes, args_hash, fence,
      took, waited, at)
    SELECT ${runId}, s.part, ${key}, s.epoch, s.kind, s.outcome, s.attempt, s.value, s.value_id, s.value_bytes,
      s.args_hash, s.fence, s.took, s.waited, s.at
    FROM lockstep_step AS s
    WHERE s.run_id = ${origin.runId} AND s.part = ${partOf(runId)} AND s.step_key IN (${list(keys)})`;
}

function copyValues(origin: RunKey, runId: string, keys: readonly string[]): Sql {
  return sql`
    INSERT INTO lockstep_value (run_id, part, value_id, chunk, data)
    SELECT ${runId}, v.part, v.value_id, v.chunk, v.data FROM lockstep_step AS s
    JOIN lockstep_value AS v ON v.run_id = s.run_id AND v.part = s.part AND v.value_id = s.value_id
    WHERE s.run_id = ${origin.runId} AND s.part = ${partOf(runId)} AND s.step_key IN (${list(keys)})`;
}

/** Its epoch is not one of the fork, which has written nothing yet. */
function insertMark(
  { now }: Dialect,
  { epoch }: RunKey,
  runId: string,
  { key, kind, outcome, attempt, value }: ForkRequest["mark"],
): Sql {
  return sql`
    INSERT INTO lockstep_step (run_id, part, step_key, epoch, kind, outcome, attempt, value, at)
    SELECT ${runId}, ${partOf(runId)}, ${key}, ${epoch}, ${kind}, ${outcome}, ${attempt}, ${value ?? null},
      CASE WHEN m.last < ${now} THEN ${now} ELSE m.last + 1 END
    FROM (SELECT COALESCE(MAX(at), 0) AS last FROM lockstep_step WHERE run_id = ${runId}) AS m`;
}

function copySignals(
  origin: RunKey,
  runId: string,
  numbers: readonly number[],
  chunk: number,
): Sql {
  return sql`
    INSERT INTO lockstep_signal (run_id, seq, name, dedupe_id, payload, at)
    SELECT ${runId}, ${chunk * CHUNK} + ROW_NUMBER() OVER (ORDER BY s.seq), s.name, s.dedupe_id,
      s.payload, s.at
    FROM lockstep_signal AS s WHERE s.run_id = ${origin.runId} AND s.seq IN (${list(numbers)})`;
}
