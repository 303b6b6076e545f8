import { asBigInt, asNumber, asText, type Row, type Sql, sql } from "../../database/sql.ts";
import type { Millis } from "../../lock/time.ts";
import type {
  Ended,
  EndStatus,
  ParentRun,
  ParkReason,
  RecordKind,
  RecordOutcome,
  RunInfo,
  RunStatus,
  Signal,
  StepRecord,
} from "../journal.ts";

export const RECORD = sql`
  s.step_key, s.epoch, s.kind, s.outcome, s.attempt, s.value, s.args_hash, s.fence, s.took, s.waited,
  s.at`;

export function toRecord(row: Row): StepRecord {
  return {
    key: asText(row.step_key),
    epoch: asBigInt(row.epoch),
    kind: asText(row.kind) as RecordKind,
    outcome: asText(row.outcome) as RecordOutcome,
    attempt: asNumber(row.attempt),
    value: optional(row.value, asText),
    argsHash: optional(row.args_hash, asText),
    fence: optional(row.fence, asText),
    took: optional(row.took, toMillis),
    waited: optional(row.waited, toMillis),
    at: toDate(row.at),
  };
}

export const SIGNAL = sql`s.name, s.dedupe_id, s.payload, s.at`;

export function toSignal(row: Row): Signal {
  return {
    name: asText(row.name),
    dedupeId: asText(row.dedupe_id),
    payload: asText(row.payload),
    at: toDate(row.at),
  };
}

export const INFO = sql`
  run_id, workflow, version, status, epoch, owner, reason, crashes, cancelled, started_at, changed_at,
  due_at`;

export function toInfo(row: Row): RunInfo {
  return {
    runId: asText(row.run_id),
    workflow: asText(row.workflow),
    version: asNumber(row.version),
    status: asText(row.status) as RunStatus,
    epoch: asBigInt(row.epoch),
    owner: asText(row.owner),
    reason: optional(row.reason, asText) as ParkReason | undefined,
    crashes: asNumber(row.crashes),
    cancelled: asNumber(row.cancelled) > 0,
    startedAt: toDate(row.started_at),
    changedAt: toDate(row.changed_at),
    dueAt: optional(row.due_at, toDate),
  };
}

/** How a run has ended, if it has. */
export function toEnded(row: Row): Ended | undefined {
  const status = asText(row.status) as RunStatus;
  if (status === "running" || status === "parked") return undefined;
  return {
    status: status satisfies EndStatus,
    value: asText(row.value),
    compensated: asNumber(row.compensated) > 0,
    at: toDate(row.changed_at),
  };
}

export function toParent(row: Row): ParentRun | undefined {
  if (row.parent_run == null) return undefined;
  return { runId: asText(row.parent_run), signal: asText(row.parent_signal) };
}

/** A condition: not one that is as good as purged. */
export function isKept(now: Sql): Sql {
  return sql`(expires_at IS NULL OR expires_at > ${now})`;
}

function optional<T>(value: unknown, to: (value: unknown) => T): T | undefined {
  return value == null ? undefined : to(value);
}

export function toMillis(micros: unknown): Millis {
  return asNumber(micros) / 1_000;
}

/** Databases count in whole microseconds here. */
export function micros(span: Millis): number {
  return Math.round(span * 1_000);
}

/** Where the span has no end: no time. */
export function timeIn(now: Sql, span: Millis): Sql {
  return span === Number.POSITIVE_INFINITY ? sql`NULL` : sql`${now} + ${micros(span)}`;
}

export function toDate(at: unknown): Date {
  return new Date(Math.floor(toMillis(at)));
}
