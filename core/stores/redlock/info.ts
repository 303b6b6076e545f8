import { holderIdOf, type LockRecord } from "../../lock/holder.ts";

/**
 * Combines the answers of masters into the state of a lock by a quorum of `needed` masters.
 *
 * The state at `silent` masters is unknown: they count for the holder that most answers name, and among several for the one with
 * the lowest fence. The later ones are claims that wait for it, and were not granted.
 */
export function combine(
  name: string,
  infos: readonly LockRecord[],
  { needed, silent }: { readonly needed: number; readonly silent: number },
): LockRecord {
  const reached = <T>(values: readonly T[]) => values[Math.max(0, needed - silent - 1)];
  const holder = commonestHolder(infos);
  const holds = infos.filter((info) => isOf(holder, info));
  const isHeld = holds.length + silent >= needed && holds.length > 0;
  // Locks without an expiry come first.
  const ends = holds.map(({ expiresIn }) => expiresIn).sort((a, b) => (b ?? HIGH) - (a ?? HIGH));
  const fencesOf = (some: readonly LockRecord[]) => some.map(({ fence = "" }) => fence);
  const fences = fencesOf(infos).sort().reverse();
  // Later claims that were not granted have tried the other masters.
  const fence = isHeld ? commonest(fencesOf(holds))[0] : reached(fences);
  return {
    name,
    holder: isHeld ? holder : undefined,
    expiresIn: isHeld ? reached(ends) : undefined,
    fence: (agreedFence(infos, needed) ?? fence) || undefined,
    waiters: 0,
  };
}

const HIGH = Number.MAX_VALUE;

/** Whether the pending answers cannot change the holder any more, nor its fence. */
export function isSettled(
  infos: readonly LockRecord[],
  { needed, pending }: { readonly needed: number; readonly pending: number },
): boolean {
  const holder = commonestHolder(infos);
  const named = infos.filter((info) => isOf(holder, info)).length;
  if (named + pending < needed) return true;
  return named >= needed && (pending === 0 || agreedFence(infos, needed) !== undefined);
}

/**
 * Returns the fence that a quorum has, or undefined if the answers have none. A master that has granted the lock late, or
 * that a later claim has tried, has a higher one of its own.
 */
function agreedFence(infos: readonly LockRecord[], needed: number): string | undefined {
  const fences = infos.map(({ fence = "" }) => fence);
  const [fence] = commonest(fences);
  return fences.filter((each) => each === fence).length >= needed ? fence : undefined;
}

/** Returns the text of the holder that most masters name. A master may still have an earlier text of the same holder. */
function commonestHolder(infos: readonly LockRecord[]): string | undefined {
  const texts = infos
    .toSorted((a, b) => ((a.fence ?? "") < (b.fence ?? "") ? -1 : 1))
    .flatMap(({ holder }) => holder ?? []);
  const [id] = commonest(texts.map(holderIdOf));
  return commonest(texts.filter((text) => holderIdOf(text) === id))[0];
}

function isOf(holder: string | undefined, info: LockRecord): boolean {
  if (holder === undefined || info.holder === undefined) return false;
  return holderIdOf(info.holder) === holderIdOf(holder);
}

/** Sorts different texts by how often they occur, the commonest first; those that are as common, as they come. */
function commonest(texts: readonly string[]): readonly string[] {
  const counts = [...Map.groupBy(texts, (text) => text)].map(
    ([text, all]) => [text, all.length] as const,
  );
  return counts.sort(([, a], [, b]) => b - a).map(([text]) => text);
}
