import type { BlockRequest, ParkRequest } from "../../../journal/changes.ts";
import {
  type ClaimedRun,
  isOpen,
  type RunClaim,
  type RunClaimResult,
  type RunKey,
  type RunLeaseRequest,
  type RunNotFound,
  type RunRenewal,
  type RunResult,
  type RunState,
  type StepInProgress,
} from "../../../journal/runs.ts";
import { hasCode, quote } from "../../../lock/errors.ts";
import { type Backoff, backoff, retry } from "../../../lock/retry.ts";
import type { Millis } from "../../../lock/time.ts";
import type { ChangePlan } from "./documents.ts";
import { pageOf, settled } from "./records.ts";
import {
  create,
  endOf,
  fromTimed,
  type Head,
  hasStatus,
  held,
  isDue,
  isTakenOver,
  type JournalContext,
  kept,
  nextEpoch,
  once,
  partitionOf,
  storeIn,
  timeIn,
  woken,
} from "./runs.ts";
import { readSignals } from "./signals.ts";
import { readStored } from "./values.ts";

/** The result of a claim: the run under its new holder. */
export interface Taken {
  readonly head: Head;
  readonly now: number;
}

type Answer = Taken | RunState | { readonly kind: "conflict" | "missing" };

/** Creates the run if it does not exist, and claims it if it is due. */
export async function claimRun(
  context: JournalContext,
  claim: RunClaim,
  signal: AbortSignal | undefined,
): Promise<RunClaimResult> {
  const { runId, workflow, inputHash } = claim;
  const make = maker(context);
  const answer = await context.runs.change<Answer>({
    ids: [runId],
    what: `run ${quote(runId)} was claimed`,
    signal,
    async plan([found], now) {
      const known = kept(found, now);
      if (known && (known.workflow !== workflow || known.inputHash !== inputHash)) {
        return { result: { kind: "conflict" } };
      }
      return planTake(context, known ?? (await make(claim, now, found)), claim, now);
    },
  });
  return toClaimResult(context, answer) as Promise<RunClaimResult>;
}

/** Claims an existing run if it is due. */
export async function takeRun(
  context: JournalContext,
  request: RunLeaseRequest,
  signal: AbortSignal | undefined,
): Promise<RunClaimResult | RunNotFound> {
  const answer = await context.runs.change<Answer>({
    ids: [request.runId],
    what: `run ${quote(request.runId)} was taken`,
    signal,
    async plan([found], now) {
      const known = kept(found, now);
      if (known === undefined) return { result: { kind: "missing" } };
      return planTake(context, known, request, now);
    },
  });
  return toClaimResult(context, answer);
}

/** Returns a function that makes a new run, also instead of an expired one. Plans are made several times. */
export function maker(context: JournalContext) {
  const input = once((head: Head, text: string) => storeIn(context, head, text));
  let made: Head | undefined;
  return async (
    run: Parameters<typeof create>[0],
    now: number,
    expired: Head | undefined,
  ): Promise<Head> => {
    const head = create(run, now, expired);
    // The input stands where the first plan has put it.
    made ??= head;
    return { ...head, instance: made.instance, input: await input(made, run.input) };
  };
}

async function planTake(
  context: JournalContext,
  before: Head,
  request: Omit<RunLeaseRequest, "runId">,
  now: number,
): Promise<ChangePlan<Head, Answer>> {
  if (!isOpen(before.status) || !isDue(before, now)) {
    return { result: await stateOf(context, before, now) };
  }
  return planClaim(context, before, request, now);
}

/** Plans the claim of a run that is due. */
export async function planClaim(
  { dynamodb }: JournalContext,
  before: Head,
  { owner, ttl }: Omit<RunLeaseRequest, "runId">,
  now: number,
): Promise<ChangePlan<Head, Taken> & { readonly docs: readonly [Head] }> {
  const { status, hasWritten, crashes, blocks, cancelled } = before;
  const isRunning = status === "running";
  const isCrash = isRunning && !hasWritten;
  const isKept = isCrash || status === "blocked";
  const head: Head = {
    ...(await settled(dynamodb, before)),
    status: "running",
    epoch: nextEpoch(before),
    owner,
    reason: undefined,
    waitsFor: undefined,
    inProgress: [],
    dueAt: timeIn(now, ttl),
    crashes: isKept ? crashes + (isCrash ? 1 : 0) : 0,
    takenOver: isRunning || isTakenOver(before),
    blocks: isKept ? blocks : 0,
    hasWritten: false,
    value: undefined,
    knownCancelled: cancelled,
    changedAt: now,
  };
  return { docs: [head], result: { head, now } };
}

async function toClaimResult(
  context: JournalContext,
  answer: Answer,
): Promise<RunClaimResult | RunNotFound> {
  if (!("head" in answer)) return answer as RunClaimResult | RunNotFound;
  return { kind: "claimed", ...(await toClaimed(context, answer)) };
}

/** How often the reads of a claimed run are repeated, and with which pauses. */
const READS = 5;
const AGAIN: Backoff = { base: 50, factor: 2, max: 1_000 };

/** Reads what the new holder of a run needs. */
export async function toClaimed(
  context: JournalContext,
  { head, now }: Taken,
): Promise<ClaimedRun> {
  const { part, workflow, version, parent, crashes, takenOver, blocks, cancelled } = head;
  // The run is the caller's: it would wait for the end of its lease.
  const [input, page, signals] = await retry(
    () =>
      Promise.all([
        readStored(context.dynamodb, partitionOf(head.runId), head.input),
        pageOf(context, head),
        readSignals(context, head),
      ]),
    (error, count) =>
      hasCode(error, "STORE_UNAVAILABLE") && count < READS ? backoff(count, AGAIN) : undefined,
  );
  const counts = { part, workflow, version, parent, crashes, blocks, cancelled, takenOver };
  return {
    ...counts,
    ...page,
    epoch: BigInt(head.epoch),
    signalsSeen: head.signals,
    input,
    signals,
    startedAt: new Date(head.startedAt),
    now: new Date(now),
  };
}

export async function stateOf(context: JournalContext, head: Head, now: number): Promise<RunState> {
  const ending = await endingOf(context, head);
  if (ending) return { kind: "ended", ending };
  const { dueAt = Number.POSITIVE_INFINITY, status, reason, childrenWait } = head;
  const dueIn = Math.max(0, dueAt - now);
  if (status === "running") return { kind: "busy", retryIn: dueIn };
  if (status === "blocked") {
    return { kind: "blocked", error: await storedValueOf(context, head), retryIn: dueIn };
  }
  const awaitsChildren = childrenWait !== undefined;
  return { kind: "parked", reason: reason ?? "deadline", wakeIn: dueIn, awaitsChildren };
}

/** The end of a run that has ended. */
export async function endingOf(
  context: JournalContext,
  head: Head,
): Promise<RunResult | undefined> {
  const { status, compensated, changedAt } = head;
  if (isOpen(status)) return undefined;
  return {
    status,
    value: await storedValueOf(context, head),
    compensated,
    at: new Date(changedAt),
  };
}

export function storedValueOf({ dynamodb }: JournalContext, { runId, value = "" }: Head) {
  return readStored(dynamodb, partitionOf(runId), value);
}

export function renew(
  { runs }: JournalContext,
  run: RunKey,
  ttl: Millis,
  signal: AbortSignal | undefined,
  inProgress: readonly StepInProgress[] = [],
): Promise<RunRenewal | undefined> {
  return runs.change<RunRenewal | undefined>({
    ids: [run.runId],
    what: `run ${quote(run.runId)} was renewed`,
    signal,
    fromMemory: true,
    plan([head], now) {
      if (!head || !hasStatus(head, run, "running")) return { result: undefined };
      const steps = inProgress.map((step) => ({ ...step, since: step.since.getTime() }));
      const dueAt = Math.max(head.dueAt ?? 0, Math.ceil(now + ttl));
      return {
        docs: [{ ...head, inProgress: steps, dueAt }],
        result: { cancelled: head.cancelled, signals: head.signals },
      };
    },
  });
}

export async function park(
  { runs }: JournalContext,
  run: RunKey,
  { reason, wakeIn, signalsSeen, lock, children }: ParkRequest,
  signal: AbortSignal | undefined,
): Promise<void> {
  await runs.change<void>({
    ids: [run.runId],
    what: `run ${quote(run.runId)} was parked`,
    signal,
    fromMemory: true,
    plan([found], now) {
      if (hasStatus(found, run, "parked")) return { result: undefined };
      const head = held(found, run, now);
      const childrenWait = children && {
        at: signalsSeen + children.count,
        within: children.within,
      };
      const isWoken =
        head.lastSent > signalsSeen ||
        head.signals >= (childrenWait?.at ?? signalsSeen + 1) ||
        head.cancelled !== head.knownCancelled;
      const hasEnded = head.signals > signalsSeen;
      const longest = hasEnded ? Math.min(wakeIn, childrenWait?.within ?? 0) : wakeIn;
      const parked = { status: "parked", reason, waitsFor: lock, childrenWait, blocks: 0 } as const;
      const dueAt = timeIn(now, isWoken ? 0 : longest);
      return { docs: [{ ...head, ...parked, dueAt, changedAt: now }], result: undefined };
    },
  });
}

export async function block(
  context: JournalContext,
  run: RunKey,
  { error, blocks, retryIn }: BlockRequest,
  signal: AbortSignal | undefined,
): Promise<void> {
  const stored = once((head: Head) => storeIn(context, head, error));
  await context.runs.change<void>({
    ids: [run.runId],
    what: `run ${quote(run.runId)} was blocked`,
    signal,
    fromMemory: true,
    async plan([found], now) {
      if (hasStatus(found, run, "blocked")) return { result: undefined };
      const head = held(found, run, now);
      const dueAt = timeIn(now, head.cancelled !== head.knownCancelled ? 0 : retryIn);
      const blocked = { status: "blocked", value: await stored(head), blocks, dueAt } as const;
      return { docs: [{ ...head, ...blocked, changedAt: now }], result: undefined };
    },
  });
}

/** How long a run that is due counts as woken: longer than a worker needs to claim it. */
const WOKEN: Millis = 1_000;

/** Makes the oldest run due that is parked for the lock. */
export async function wakeWaiting(context: JournalContext, lock: string): Promise<boolean> {
  const { dynamodb, runs } = context;
  const range = { pk: `waiting/${lock}`, from: "0", to: endOf("9"), limit: 100 };
  for await (const { items } of dynamodb.query(range)) {
    for (const { sk = "" } of items) {
      const isWoken = await runs.change<boolean>({
        ids: [fromTimed(sk).id],
        what: `a run that waits for lock ${quote(lock)} was woken`,
        plan([head], now) {
          const isWaiting = head?.status === "parked" && head.waitsFor === lock;
          const dueAt = head?.dueAt ?? Number.POSITIVE_INFINITY;
          if (!head || !isWaiting || dueAt <= now - WOKEN) return { result: false };
          return { docs: [woken(head, now)], result: true };
        },
      });
      if (isWoken) return true;
    }
  }
  return false;
}
