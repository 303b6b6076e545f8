import type { Claim, Claimed, Journal, NewRecord, RunKey } from "../../core/journal/journal.ts";

let runs = 0;

/** A run id that nobody has used. */
export function newRunId(): string {
  runs += 1;
  return `run-${process.pid}-${runs}`;
}

export const HASH = "0123456789abcdef".repeat(4);

export function claimOf(runId: string, more: Partial<Claim> = {}): Claim {
  return {
    ...{ runId, owner: "a tester", ttl: 20_000, workflow: "order", version: 1 },
    ...{ input: '{"units":1}', inputHash: HASH, ...more },
  };
}

export function record(key: string, more: Partial<NewRecord> = {}): NewRecord {
  return { key, kind: "step", outcome: "ok", attempt: 1, value: `"${key}"`, ...more };
}

export type Possessed = Extract<Claimed, { readonly kind: "claimed" }>;

/** What a claim gives that has to succeed. */
export async function claimed(journal: Journal, claim: Claim): Promise<Possessed> {
  return mine(await journal.claim(claim));
}

export function mine(answer: { readonly kind: string }): Possessed {
  if (answer.kind !== "claimed") throw new Error(`not claimed but ${answer.kind}`);
  return answer as Possessed;
}

/** A new run, held. */
export async function running(
  journal: Journal,
  more: Partial<Claim> = {},
): Promise<RunKey & { readonly claim: Claim }> {
  const claim = claimOf(newRunId(), more);
  const { epoch } = await claimed(journal, claim);
  return { runId: claim.runId, epoch, claim };
}

export const DONE = {
  status: "completed",
  value: '"done"',
  compensated: false,
  keep: 600_000,
} as const;
