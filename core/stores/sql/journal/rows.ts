import {
  asBigInt,
  asNumber,
  asText,
  exact,
  type Row,
  type Sql,
  sql,
} from "../../../database/sql.ts";
import type { RunInfo } from "../../../journal/queries.ts";
import type { RecordKind, RecordOutcome, StepRecord } from "../../../journal/records.ts";
import {
  type Compensation,
  type FinalStatus,
  isOpen,
  type ParentRun,
  type ParkReason,
  type RunKey,
  type RunResult,
  type RunSignal,
  type RunState,
  type RunStatus,
  type StepInProgress,
} from "../../../journal/runs.ts";
import type { Millis } from "../../../lock/time.ts";
import { micros, toMillis } from "../micros.ts";

export const RECORD = sql`
  s.step_key, ${exact(sql`s.epoch`)} AS epoch, s.kind, s.outcome, s.attempt, s.value, s.value_bytes,
  s.args_hash, s.fence, s.took, s.waited, s.part, s.at`;

export function toRecord(row: Row): StepRecord {
  return {
    key: asText(row.step_key),
    epoch: asBigInt(row.epoch),
    kind: asText(row.kind) as RecordKind,
    outcome: asText(row.outcome) as RecordOutcome,
    attempt: asNumber(row.attempt),
    value: optional(row.value, asText),
    valueBytes: optional(row.value_bytes, asNumber),
    argsHash: optional(row.args_hash, asText),
    fence: optional(row.fence, asText),
    took: optional(row.took, toMillis),
    waited: optional(row.waited, toMillis),
    at: toDate(row.at),
  };
}

export const SIGNAL = sql`s.seq, s.name, s.dedupe_id, s.payload, s.at`;

export function toSignal(row: Row): RunSignal {
  return {
    number: asNumber(row.seq),
    name: asText(row.name),
    dedupeId: asText(row.dedupe_id),
    payload: asText(row.payload),
    at: toDate(row.at),
  };
}

export const INFO = sql`
  run_id, part, workflow, version, queue, turn_key, priority, status, ${exact(sql`epoch`)} AS epoch, owner,
  reason, waits_for, in_progress, crashes, cancelled, origin_run, origin_step, started_at, changed_at, due_at`;

/** The same, and the encoded error of a blocked run. */
export const INFO_AND_ERROR = sql`${INFO}, CASE WHEN status = 'blocked' THEN value END AS block_error`;

export function toInfo(row: Row): RunInfo {
  return {
    runId: asText(row.run_id),
    part: asNumber(row.part),
    workflow: asText(row.workflow),
    version: asNumber(row.version),
    queue: asText(row.queue),
    key: asText(row.turn_key) || undefined,
    priority: asNumber(row.priority),
    status: asText(row.status) as RunStatus,
    epoch: asBigInt(row.epoch),
    owner: asText(row.owner),
    reason: optional(row.reason, asText) as ParkReason | undefined,
    waitsFor: asText(row.status) === "parked" ? optional(row.waits_for, asText) : undefined,
    inProgress: asText(row.status) === "running" ? (optional(row.in_progress, toSteps) ?? []) : [],
    crashes: asNumber(row.crashes),
    cancelled: asNumber(row.cancelled) > 0,
    error: optional(row.block_error, asText),
    origin: toOrigin(row),
    startedAt: toDate(row.started_at),
    changedAt: toDate(row.changed_at),
    dueAt: optional(row.due_at, toDate),
  };
}

function toSteps(text: unknown): readonly StepInProgress[] {
  const steps: readonly StepInProgress[] = JSON.parse(asText(text));
  return steps.map((step) => ({ ...step, since: new Date(step.since) }));
}

/** A condition: the run has not ended. */
export function isOpenSql(table: Sql): Sql {
  return sql`${table}.status IN ('running', 'parked', 'blocked')`;
}

/** The encoded error of a blocked run. */
export function toError(row: Row): string | undefined {
  return asText(row.status) === "blocked" ? asText(row.value) : undefined;
}

/** The result of an ended run. */
export function toResult(row: Row): RunResult | undefined {
  const status = asText(row.status) as RunStatus;
  if (isOpen(status)) return undefined;
  return {
    status: status satisfies FinalStatus,
    value: asText(row.value),
    compensated: optional(row.compensated, asText) as Compensation | undefined,
    at: toDate(row.changed_at),
  };
}

/** The columns of `toRunState`. */
export function runState(now: Sql): Sql {
  return sql`status, reason, wake_signal, value, compensated, changed_at, due_at, ${now} AS now`;
}

export function toRunState(row: Row): RunState {
  const ending = toResult(row);
  if (ending) return { kind: "ended", ending };
  const { due_at: dueAt, now } = row;
  const dueIn =
    optional(dueAt, (at) => Math.max(0, toMillis(at) - toMillis(now))) ?? Number.POSITIVE_INFINITY;
  const error = toError(row);
  if (error !== undefined) return { kind: "blocked", error, retryIn: dueIn };
  if (asText(row.status) === "running") return { kind: "busy", retryIn: dueIn };
  // A new run has no reason.
  const reason = optional(row.reason, asText) as ParkReason | undefined;
  const awaitsChildren = row.wake_signal != null;
  return { kind: "parked", reason: reason ?? "deadline", wakeIn: dueIn, awaitsChildren };
}

export function toParent(row: Row): ParentRun | undefined {
  if (row.parent_run == null) return undefined;
  return { runId: asText(row.parent_run), signal: asText(row.parent_signal) };
}

function toOrigin(row: Row): RunInfo["origin"] {
  if (row.origin_run == null) return undefined;
  return { runId: asText(row.origin_run), step: asText(row.origin_step) };
}

/** A condition: this holder has the run. */
export function isHeld({ runId, epoch }: RunKey): Sql {
  return sql`run_id = ${runId} AND epoch = ${epoch} AND status = 'running'`;
}

/** The number of the run's current history. */
export function partOf(runId: string): Sql {
  return sql`(SELECT part FROM lockstep_run WHERE run_id = ${runId})`;
}

/** A condition: the run has not expired. */
export function isKept(now: Sql): Sql {
  return sql`(expires_at IS NULL OR expires_at > ${now})`;
}

function optional<T>(value: unknown, to: (value: unknown) => T): T | undefined {
  return value == null ? undefined : to(value);
}

/** The time after the span. NULL for Infinity. */
export function timeIn(now: Sql, span: Millis): Sql {
  return span === Number.POSITIVE_INFINITY ? sql`NULL` : sql`${now} + ${micros(span)}`;
}

export function toDate(at: unknown): Date {
  return new Date(Math.floor(toMillis(at)));
}
