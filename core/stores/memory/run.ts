import type { RunDetails, RunInfo } from "../../journal/queries.ts";
import {
  type PageOfRecords,
  RECORDS_PER_PAGE,
  type RecordPage,
  type StepRecord,
} from "../../journal/records.ts";
import type {
  NewRun,
  ParkReason,
  RunResult,
  RunSignal,
  RunState,
  RunStatus,
  StepInProgress,
} from "../../journal/runs.ts";
import { DEFAULT_QUEUE } from "../../journal/turn-order.ts";
import { unknownPage } from "../../journal/validated.ts";
import type { Millis } from "../../lock/time.ts";

export interface Run extends Omit<NewRun, "owner" | "turn"> {
  readonly queue: string;
  readonly key: string | undefined;
  readonly priority: number;
  readonly origin: RunInfo["origin"];
  readonly startedAt: Date;
  part: number;
  records: Map<string, StepRecord>;

  /** Of the history before. */
  earlier: ReadonlyMap<string, StepRecord>;
  readonly signals: RunSignal[];

  /** The numbers of the signals that earlier histories have received. */
  readonly received: Set<number>;

  /** The number of the last signal that is not the end of a child. */
  lastSent: number;

  /** Of a run that is parked for children. */
  childrenWait: { readonly at: number; readonly within: Millis } | undefined;
  status: RunStatus;
  epoch: bigint;
  owner: string;
  reason: ParkReason | undefined;

  /** The lock that the parked run waits for. */
  waitsFor: string | undefined;
  inProgress: readonly StepInProgress[];

  /** The end of the lease, of the sleep, or of the result's retention, by the monotonic clock. */
  until: Millis;

  /** The same time by the wall clock, for display. */
  untilDate: Date | undefined;
  crashes: number;
  takenOver: boolean;
  blocks: number;

  /** The encoded error of a blocked run. */
  error: string | undefined;
  cancelled: boolean;

  /** Whether the run was cancelled before its last claim. */
  knownCancelled: boolean;
  changedAt: Date;
  ending: RunResult | undefined;
}

/** Makes a due run. */
export function create(claim: NewRun, origin?: RunInfo["origin"]): Run {
  const { runId, workflow, version, input, inputHash, parent, detached, turn = {} } = claim;
  const { queue = DEFAULT_QUEUE, key, priority = 0 } = turn;
  return {
    ...{ runId, workflow, version, input, inputHash, parent, detached, queue, key, priority },
    origin,
    startedAt: new Date(),
    part: 1,
    records: new Map(),
    earlier: new Map(),
    signals: [],
    received: new Set(),
    lastSent: 0,
    childrenWait: undefined,
    status: "parked",
    epoch: 0n,
    owner: "",
    reason: undefined,
    waitsFor: undefined,
    inProgress: [],
    ...after(0),
    crashes: 0,
    takenOver: false,
    blocks: 0,
    error: undefined,
    cancelled: false,
    knownCancelled: false,
    changedAt: new Date(),
    ending: undefined,
  };
}

/** Returns the same run as a new one without a parent. */
export function toNewRun({ runId, workflow, version, input, inputHash, ...run }: Run): NewRun {
  const { owner, queue, key, priority } = run;
  return { runId, owner, workflow, version, input, inputHash, turn: { queue, key, priority } };
}

export function stateOf({ ending, status, error, until, reason, childrenWait }: Run): RunState {
  if (ending) return { kind: "ended", ending };
  const dueIn = Math.max(0, until - performance.now());
  if (status === "running") return { kind: "busy", retryIn: dueIn };
  if (error !== undefined) return { kind: "blocked", error, retryIn: dueIn };
  const awaitsChildren = childrenWait !== undefined;
  return { kind: "parked", reason: reason ?? "deadline", wakeIn: dueIn, awaitsChildren };
}

export function isDue({ until }: Run): boolean {
  return until <= performance.now();
}

/** Makes a parked or blocked run due after the span, unless it is due earlier. */
export function wake(run: Run, span: Millis = 0): void {
  const isLater = run.until > performance.now() + span;
  const isWaiting = run.status === "parked" || run.status === "blocked";
  if (isWaiting && isLater) Object.assign(run, after(span));
}

export function requestCancel(run: Run): void {
  if (!run.cancelled) wake(run);
  run.cancelled = true;
}

export function after(span: Millis): Pick<Run, "until" | "untilDate"> {
  const untilDate = span === Number.POSITIVE_INFINITY ? undefined : new Date(Date.now() + span);
  return { until: performance.now() + span, untilDate };
}

export function info(run: Run): RunInfo {
  const { runId, part, workflow, version, status, epoch, owner, crashes, cancelled, error } = run;
  const { queue, key, priority, origin, startedAt, changedAt, untilDate, ending } = run;
  return {
    ...{ queue, key, priority, origin },
    ...{ runId, part, workflow, version, status, epoch, owner, crashes, cancelled },
    ...{ error, startedAt, changedAt },
    reason: status === "parked" ? run.reason : undefined,
    waitsFor: status === "parked" ? run.waitsFor : undefined,
    inProgress: status === "running" ? run.inProgress : [],
    dueAt: ending ? undefined : untilDate,
  };
}

export function details(run: Run, forks: readonly Run[], page?: RecordPage): RunDetails {
  const { input, ending } = run;
  const signals = unreceived(run);
  const more = {
    ...pageOf(run, page),
    signals,
    forks: forks.map(({ runId }) => runId),
    now: new Date(),
  };
  return { ...info(run), input, ending, ...more };
}

export function unreceived({ signals, received }: Run): readonly RunSignal[] {
  return signals.filter(({ number }) => !received.has(number));
}

/** A cursor is the number of records before the page. */
export function pageOf(
  run: Run,
  { part = run.part, after = "0", limit = RECORDS_PER_PAGE }: RecordPage = {},
): PageOfRecords {
  const earlier = part === run.part - 1 ? run.earlier : new Map<string, StepRecord>();
  const all = part === run.part ? run.records : earlier;
  const from = Number(after);
  if (!Number.isSafeInteger(from)) throw unknownPage(after);
  const page = [...all.values().drop(from).take(limit)];
  const to = from + page.length;
  return {
    records: page.map(withoutLargeValue),
    next: to < all.size ? `${to}` : undefined,
  };
}

function withoutLargeValue(record: StepRecord): StepRecord {
  return record.valueBytes === undefined ? record : { ...record, value: undefined };
}
