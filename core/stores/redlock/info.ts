import type { LockRecord } from "../../lock/holder.ts";

/**
 * Combines the answers of masters into the state of a lock by a quorum of `needed` masters.
 *
 * The state at `silent` masters is unknown: they count for the holder that most answers name.
 */
export function combine(
  name: string,
  infos: readonly LockRecord[],
  { needed, silent }: { readonly needed: number; readonly silent: number },
): LockRecord {
  const reached = <T>(values: readonly T[]) => values[Math.max(0, needed - silent - 1)];
  const holder = commonestHolder(infos);
  const holds = infos.filter((info) => holder !== undefined && info.holder === holder);
  const isHeld = holds.length + silent >= needed && holds.length > 0;
  // Locks without an expiry come first.
  const ends = holds.map(({ expiresIn }) => expiresIn).sort((a, b) => (b ?? HIGH) - (a ?? HIGH));
  const fences = infos
    .map(({ fence = "" }) => fence)
    .sort()
    .reverse();
  return {
    name,
    holder: isHeld ? holder : undefined,
    expiresIn: isHeld ? reached(ends) : undefined,
    fence: reached(fences) || undefined,
    waiters: 0,
  };
}

const HIGH = Number.MAX_VALUE;

/** Whether the pending answers cannot change the holder any more. */
export function isSettled(
  infos: readonly LockRecord[],
  { needed, pending }: { readonly needed: number; readonly pending: number },
): boolean {
  const holder = commonestHolder(infos);
  const named = infos.filter((info) => holder !== undefined && info.holder === holder).length;
  return named >= needed || named + pending < needed;
}

function commonestHolder(infos: readonly LockRecord[]): string | undefined {
  const counts = new Map<string, number>();
  for (const { holder } of infos) {
    if (holder !== undefined) counts.set(holder, (counts.get(holder) ?? 0) + 1);
  }
  const [first] = [...counts].sort(([, a], [, b]) => b - a);
  return first?.[0];
}
