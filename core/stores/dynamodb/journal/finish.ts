import type { ContinueRequest, ReopenRequest } from "../../../journal/changes.ts";
import { encodeChildResult } from "../../../journal/child-result.ts";
import type { FinishRequest, NewSignal, RunKey } from "../../../journal/runs.ts";
import { quote } from "../../../lock/errors.ts";
import type { ChangePlan } from "./documents.ts";
import { renameRecords } from "./records.ts";
import {
  endOf,
  type Head,
  hasStatus,
  held,
  itemOf,
  type JournalContext,
  kept,
  once,
  opened,
  padded,
  storeIn,
  timeIn,
  valuesOf,
  woken,
} from "./runs.ts";
import { forgetSignals, payloadOf, withSignal } from "./signals.ts";
import { deleteRange, LONGEST_IN_HEAD, store, storeChunks } from "./values.ts";

/** Ends the run and signals its parent in one transaction. */
export async function finish(
  context: JournalContext,
  run: RunKey,
  request: FinishRequest,
  signal: AbortSignal | undefined,
): Promise<"ended" | "cancelled"> {
  const { runId } = run;
  const { status, value, compensated, keep } = request;
  const stored = once((head: Head) => storeIn(context, head, value));
  const payload = payloadOf(context, { payload: encodeChildResult(request) });
  // Known to the holder, and the same for ever.
  const [before] = await context.runs.read([runId], signal);
  const parentId = before?.parent?.runId;
  if (before && hasStatus(before, run, "running")) await stored(before);
  let isKnown = false;
  return context.runs.change<"ended" | "cancelled">({
    ids: parentId === undefined || parentId === runId ? [runId] : [runId, parentId],
    what: `run ${quote(runId)} was ended`,
    signal,
    async plan([child, parent], now): Promise<ChangePlan<Head, "ended" | "cancelled">> {
      if (hasStatus(child, run, "completed", "failed", "cancelled")) return { result: "ended" };
      const isRefused = status === "completed" && child?.cancelled === true;
      if (isRefused && hasStatus(child, run, "parked")) return { result: "cancelled" };
      const head = held(child, run, now);
      if (isRefused) return { docs: [parkedToCancel(head, now), parent], result: "cancelled" };
      const ended: Head = {
        ...head,
        status,
        reason: undefined,
        dueAt: undefined,
        value: await stored(head),
        compensated,
        changedAt: now,
        expiresAt: timeIn(now, keep),
      };
      const family = kept(parent, now);
      if (!head.parent || !family) return { docs: [ended, parent], result: "ended" };
      if (isKnown) {
        const isFailed = family.status === "failed" || family.status === "cancelled";
        const isWrong = isFailed && !head.detached && status !== "completed";
        return { docs: [ended, isWrong ? opened(family, now) : family], result: "ended" };
      }
      const end: Omit<NewSignal, "payload"> = { name: head.parent.signal, dedupeId: runId };
      const told = withSignal(family, end, await payload(family), now);
      return {
        docs: [ended, wokenByChild(told.head, now)],
        writes: told.writes,
        result: "ended",
        refused() {
          isKnown = true;
        },
      };
    },
  });
}

/** Ends of children wake their parent in batches, if it is parked for them. */
function wokenByChild(parent: Head, now: number): Head {
  const { status, childrenWait, signals } = parent;
  const batch = status === "parked" ? childrenWait : undefined;
  return woken(parent, now, batch && signals < batch.at ? batch.within : 0);
}

/** The run whose cancellation was requested: it is due at once. */
function parkedToCancel(head: Head, now: number): Head {
  return {
    ...head,
    status: "parked",
    reason: "deadline",
    waitsFor: undefined,
    childrenWait: undefined,
    dueAt: now,
    changedAt: now,
  };
}

/** Begins the next history. Deletes what is left of the histories before the one that ends. */
export function continueAsNew(
  context: JournalContext,
  run: RunKey,
  { part, input, received }: ContinueRequest,
): Promise<"continued" | "cancelled"> {
  const next = part + 1;
  const stored = once((head: Head) =>
    store(context.dynamodb, valuesOf({ ...head, part: next }), input, LONGEST_IN_HEAD),
  );
  return context.runs.change<"continued" | "cancelled">({
    ids: [run.runId],
    what: `the next part of run ${quote(run.runId)} was begun`,
    async plan([found], now): Promise<ChangePlan<Head, "continued" | "cancelled">> {
      if (found && found.part > part) return { result: "continued" };
      if (found?.cancelled && hasStatus(found, run, "parked")) return { result: "cancelled" };
      const head = held(found, run, now);
      if (head.cancelled) return { docs: [parkedToCancel(head, now)], result: "cancelled" };
      await forget(context, head);
      const begun: Head = {
        ...head,
        status: "parked",
        reason: undefined,
        childrenWait: undefined,
        part: next,
        input: await stored(head),
        received,
        dueAt: now,
        startedAt: now,
        changedAt: now,
        crashes: 0,
        takenOver: false,
        blocks: 0,
      };
      return { docs: [begun], result: "continued" };
    },
  });
}

async function forget(context: JournalContext, head: Head): Promise<void> {
  for (const kind of ["record", "key", "value"]) {
    const { pk, sk: from } = itemOf(head, `${kind}/`);
    const { sk: last } = itemOf(head, `${kind}/${padded(head.part - 1)}`);
    await deleteRange(context.dynamodb, { pk, from, to: endOf(last) });
  }
  await forgetSignals(context, head);
}

/** Reopens the run. The renaming of its records is part of its state until it is done: a claim would do it. */
export async function reopen(
  context: JournalContext,
  run: RunKey,
  { supersede, isRetry }: ReopenRequest,
): Promise<boolean> {
  const { dynamodb, runs } = context;
  const keys = once((head: Head) =>
    storeChunks(dynamodb, valuesOf(head), JSON.stringify(supersede)),
  );
  let reopened: Head | undefined;
  const isReopened = await runs.change<boolean>({
    ids: [run.runId],
    what: `run ${quote(run.runId)} was reopened`,
    async plan([found], now) {
      const head = kept(found, now);
      const isOther = !head || hasStatus(head, run, "running", "parked");
      if (isOther || head.epoch !== String(run.epoch)) return { result: false };
      const { epoch } = head;
      const superseded =
        supersede.length > 0 ? { superseded: { epoch, keys: await keys(head) } } : {};
      const cancelled = head.cancelled && head.status === "blocked";
      const restart = isRetry ? { cancelled, startedAt: now } : {};
      reopened = { ...opened(head, now), ...restart, ...superseded };
      return { docs: [reopened], result: true };
    },
  });
  // If that fails, the next claim renames them.
  if (isReopened && reopened) await supersedeNow(context, reopened).catch(() => {});
  return isReopened;
}

async function supersedeNow({ dynamodb, runs }: JournalContext, reopened: Head): Promise<void> {
  const { runId, superseded } = reopened;
  if (!superseded) return;
  await renameRecords(dynamodb, reopened);
  await runs.change<void>({
    ids: [runId],
    what: `records of run ${quote(runId)} were superseded`,
    plan([head]) {
      const isSame = head?.superseded?.epoch === superseded.epoch;
      return { docs: [isSame ? { ...head, superseded: undefined } : head], result: undefined };
    },
  });
}
