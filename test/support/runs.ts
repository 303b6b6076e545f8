import type { Journal } from "../../core/journal/journal.ts";
import type { DueQuery } from "../../core/journal/queries.ts";
import type { NewRecord } from "../../core/journal/records.ts";
import type { RunClaim, RunClaimResult, RunKey } from "../../core/journal/runs.ts";
import { pause, until } from "./until.ts";

let runs = 0;

/** Returns a new run id. */
export function newRunId(): string {
  runs += 1;
  return `run-${process.pid}-${runs}`;
}

export const HASH = "0123456789abcdef".repeat(4);

export function claimOf(runId: string, more: Partial<RunClaim> = {}): RunClaim {
  return {
    ...{ runId, owner: "a tester", ttl: 300_000, workflow: "order", version: 1 },
    ...{ input: '{"units":1}', inputHash: HASH, ...more },
  };
}

export function record(key: string, more: Partial<NewRecord> = {}): NewRecord {
  return { key, kind: "step", outcome: "ok", attempt: 1, value: `"${key}"`, ...more };
}

export type Claimed = Extract<RunClaimResult, { readonly kind: "claimed" }>;

/** Claims a run. Throws unless the claim succeeds. */
export async function claimed(journal: Journal, claim: RunClaim): Promise<Claimed> {
  return mine(await journal.claim(claim));
}

export function mine(answer: { readonly kind: string }): Claimed {
  if (answer.kind !== "claimed") throw new Error(`not claimed but ${answer.kind}`);
  return answer as Claimed;
}

/** Starts a new run and holds its lease. */
export async function running(
  journal: Journal,
  more: Partial<RunClaim> = {},
): Promise<RunKey & { readonly claim: RunClaim }> {
  const claim = claimOf(newRunId(), more);
  const { epoch } = await claimed(journal, claim);
  return { runId: claim.runId, epoch, claim };
}

export const DONE = {
  status: "completed",
  value: '"done"',
  keep: 600_000,
} as const;

/** Waits without an end for a signal. */
export const FOREVER = {
  reason: "signal",
  wakeIn: Number.POSITIVE_INFINITY,
  signalsSeen: 0,
} as const;

export const STALE = { code: "STALE_RUN" };

/** Claims the run for a successor as soon as its lease has expired. */
export function taken(journal: Journal, runId: string): Promise<RunKey> {
  return until(async () => {
    const answer = await journal.take({ runId, owner: "a successor", ttl: 300_000 });
    return answer.kind === "claimed" && { runId, epoch: answer.epoch };
  });
}

/** Returns the ids of the workflow's due runs, the longest due first. Dates are whole milliseconds, rounded down. */
export async function dueOf(journal: Journal, workflow: string): Promise<readonly string[]> {
  return (await dueTimesOf(journal, workflow)).map(({ runId }) => runId);
}

/** Returns the due runs with their times, the longest due first. Runs of the same millisecond have any order. */
export async function dueTimesOf(
  journal: Journal,
  workflow: string,
): Promise<readonly { readonly runId: string; readonly dueAt: number }[]> {
  await pause(2);
  const runs = await journal.list({ workflow, limit: 10_000 });
  return runs
    .filter(({ dueAt }) => dueAt && dueAt.getTime() < Date.now())
    .map(({ runId, dueAt }) => ({ runId, dueAt: Number(dueAt) }))
    .sort((a, b) => a.dueAt - b.dueAt);
}

/** Requests due runs of version 1 of the workflow. */
export function dueQuery(workflow: string, more: Partial<DueQuery> = {}): DueQuery {
  const workflows = [{ workflow, version: 1 }];
  return { workflows, queues: ["default"], owner: "a worker", ttl: 300_000, limit: 100, ...more };
}
