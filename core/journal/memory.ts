import type { Millis } from "../lock/time.ts";
import { checked } from "./check.ts";
import { toPayload } from "./ending.ts";
import {
  type Claim,
  type Claimed,
  type Ended,
  type Journal,
  type NewSignal,
  type ParkReason,
  type RunDetails,
  type RunInfo,
  type RunKey,
  type RunStatus,
  type Signal,
  StaleRunError,
  type StepRecord,
  type Take,
} from "./journal.ts";

interface Run extends Omit<Claim, keyof Take> {
  readonly runId: string;
  readonly startedAt: Date;
  readonly records: Map<string, StepRecord>;
  readonly signals: Signal[];
  status: RunStatus;
  epoch: bigint;
  owner: string;
  reason: ParkReason | undefined;

  /** Until when its holder has it, or its sleep lasts, by the monotonic clock; then until when it is kept. */
  until: Millis;

  /** The same by the wall clock, for humans. */
  untilDate: Date | undefined;
  crashes: number;
  cancelled: boolean;

  /** Whether its holder was told when it took the run. */
  knownCancelled: boolean;
  changedAt: Date;
  ending: Ended | undefined;
}

/** A journal of one process: the reference for what a journal does. It is gone with the process. */
export function memoryJournal(): Journal {
  const runs = new Map<string, Run>();
  let lastEpoch = 0n;

  const find = (runId: string): Run | undefined => {
    const run = runs.get(runId);
    return run && !(run.ending && isOver(run)) ? run : undefined;
  };

  const held = ({ runId, epoch }: RunKey): Run => {
    const run = find(runId);
    if (run?.epoch === epoch && run.status === "running") return run;
    throw new StaleRunError({ runId, epoch });
  };

  const isDone = ({ runId, epoch }: RunKey, ...done: readonly RunStatus[]) => {
    const run = find(runId);
    return run?.epoch === epoch && done.includes(run.status);
  };

  const take = (run: Run, { owner, ttl }: Take): Claimed => {
    const { status, reason, ending } = run;
    if (ending) return { kind: "ended", ending };
    const wakeIn = run.until - performance.now();
    if (wakeIn > 0 && status === "running") return { kind: "busy", retryIn: wakeIn };
    if (wakeIn > 0 && reason) return { kind: "parked", reason, wakeIn };
    lastEpoch += 1n;
    Object.assign(run, {
      status: "running",
      epoch: lastEpoch,
      owner,
      reason: undefined,
      ...after(ttl),
      crashes: status === "running" ? run.crashes + 1 : 0,
      knownCancelled: run.cancelled,
      changedAt: new Date(),
    } satisfies Partial<Run>);
    const { epoch, workflow, version, input, parent, crashes, cancelled, startedAt } = run;
    const { records, signals } = details(run);
    const begun = { epoch, workflow, version, input, parent, startedAt, now: new Date() };
    return { kind: "claimed", ...begun, crashes, cancelled, records, signals };
  };

  const leave = (runId: string, { name, dedupeId, payload }: NewSignal) => {
    const run = find(runId);
    if (!run) return "missing";
    if (run.ending) return "ended";
    const { signals } = run;
    if (signals.some((one) => one.name === name && one.dedupeId === dedupeId)) return "duplicate";
    signals.push({ name, dedupeId, payload, at: new Date() });
    wake(run);
    return "delivered";
  };

  return checked({
    address: "memory:",
    transact: undefined,

    async claim(claim) {
      const known = find(claim.runId);
      if (known && (known.workflow !== claim.workflow || known.inputHash !== claim.inputHash)) {
        return { kind: "conflict" };
      }
      if (known) return take(known, claim);
      const run = begin(claim);
      // One of that id whose time is over had an older place in the order.
      runs.delete(run.runId);
      runs.set(run.runId, run);
      return take(run, claim);
    },

    async take(wanted) {
      const run = find(wanted.runId);
      return run ? take(run, wanted) : { kind: "missing" };
    },

    async renew(key, ttl) {
      if (!isDone(key, "running")) return undefined;
      const run = held(key);
      if (performance.now() + ttl > run.until) Object.assign(run, after(ttl));
      return { cancelled: run.cancelled, signals: run.signals.length };
    },

    async append(key, record) {
      const { records } = held(key);
      const known = records.get(record.key);
      if (known) return known;
      const written = { ...record, epoch: key.epoch, at: new Date() };
      records.set(record.key, written);
      return written;
    },

    async park(key, { reason, wakeIn, signalsSeen }) {
      if (isDone(key, "parked")) return;
      const run = held(key);
      const isCalled = run.signals.length > signalsSeen || run.cancelled !== run.knownCancelled;
      const due = after(isCalled ? 0 : wakeIn);
      Object.assign(run, { status: "parked", reason, ...due, changedAt: new Date() });
    },

    async finish(key, { status, value, compensated, keep }) {
      if (isDone(key, "completed", "failed", "cancelled")) return;
      const run = held(key);
      const ending = { status, value, compensated, at: new Date() };
      Object.assign(run, { status, ending, ...after(keep), changedAt: ending.at });
      if (!run.parent) return;
      const { runId, signal: name } = run.parent;
      leave(runId, { name, dedupeId: key.runId, payload: toPayload(ending) });
    },

    signal: async (runId, signal) => leave(runId, signal),

    async cancel(runId) {
      const run = find(runId);
      if (!run) return "missing";
      if (run.ending) return "ended";
      if (!run.cancelled) wake(run);
      run.cancelled = true;
      return "requested";
    },

    async due({ workflows, limit }) {
      const isWanted = (run: Run) =>
        workflows.some((one) => one.workflow === run.workflow && one.version === run.version);
      return [...runs.values()]
        .filter((run) => !run.ending && isOver(run) && isWanted(run))
        .sort((a, b) => a.until - b.until)
        .slice(0, limit)
        .map(({ runId }) => runId);
    },

    async list({ workflow, status, limit } = {}) {
      return [...runs.values()]
        .filter((run) => find(run.runId) && run.workflow === (workflow ?? run.workflow))
        .filter((run) => run.status === (status ?? run.status))
        .reverse()
        .slice(0, limit)
        .map(info);
    },

    async show(runId) {
      const run = find(runId);
      return run && details(run);
    },

    async purge(limit) {
      const over = [...runs.keys()].filter((runId) => !find(runId)).slice(0, limit);
      for (const runId of over) runs.delete(runId);
      return over.length;
    },

    close: async () => {},
    [Symbol.asyncDispose]: async () => {},
  });
}

/** A run that is due. */
function begin(claim: Claim): Run {
  const { runId, workflow, version, input, inputHash, parent } = claim;
  return {
    ...{ runId, workflow, version, input, inputHash, parent },
    startedAt: new Date(),
    records: new Map(),
    signals: [],
    status: "parked",
    epoch: 0n,
    owner: "",
    reason: undefined,
    ...after(0),
    crashes: 0,
    cancelled: false,
    knownCancelled: false,
    changedAt: new Date(),
    ending: undefined,
  };
}

function isOver({ until }: Run): boolean {
  return until <= performance.now();
}

function wake(run: Run): void {
  if (run.status === "parked" && !isOver(run)) Object.assign(run, after(0));
}

function after(span: Millis): Pick<Run, "until" | "untilDate"> {
  const untilDate = span === Number.POSITIVE_INFINITY ? undefined : new Date(Date.now() + span);
  return { until: performance.now() + span, untilDate };
}

function info(run: Run): RunInfo {
  const { runId, workflow, version, status, epoch, owner, crashes, cancelled } = run;
  const { startedAt, changedAt, untilDate, ending } = run;
  return {
    ...{ runId, workflow, version, status, epoch, owner, crashes, cancelled, startedAt, changedAt },
    reason: status === "parked" ? run.reason : undefined,
    dueAt: ending ? undefined : untilDate,
  };
}

function details(run: Run): RunDetails {
  const { input, ending } = run;
  const [records, signals] = [[...run.records.values()], [...run.signals]];
  return { ...info(run), input, ending, records, signals, now: new Date() };
}
