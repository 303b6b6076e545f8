import { asNumber, asText, type Database, type Row, type Sql, sql } from "../../../database/sql.ts";
import type { WorkflowVersion } from "../../../journal/runs.ts";
import type { WaitingRun } from "../../../journal/turn-order.ts";
import { readUnion } from "./union.ts";

/** The runs of one workflow version in one queue. */
export interface RunSource extends WorkflowVersion {
  readonly queue: string;
}

type FoundRun = WaitingRun & WorkflowVersion;

/** Selects due runs that meet the condition, the longest due first. */
export function selectDue(now: Sql, condition: Sql, most: number): Sql {
  return sql`
    SELECT run_id, queue, workflow, version, turn_key, priority, due_at FROM lockstep_run
    WHERE ${condition} AND due_at <= ${now} ORDER BY due_at LIMIT ${most}`;
}

export function isFrom({ queue, workflow, version }: RunSource): Sql {
  return sql`queue = ${queue} AND workflow = ${workflow} AND version = ${version}`;
}

/** Reads due runs with SELECTs of `selectDue`. */
export async function readDue(
  database: Database,
  parts: readonly Sql[],
  limit: AbortSignal,
): Promise<readonly FoundRun[]> {
  return (await readUnion(database, parts, limit)).map(toWaiting);
}

function toWaiting(row: Row): FoundRun {
  return {
    runId: asText(row.run_id),
    queue: asText(row.queue),
    workflow: asText(row.workflow),
    version: asNumber(row.version),
    key: asText(row.turn_key) || undefined,
    priority: asNumber(row.priority),
    dueAt: asNumber(row.due_at),
  };
}
