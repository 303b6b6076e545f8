import type { RunInfo } from "../../core/journal/queries.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { Millis } from "../../core/lock/time.ts";
import { withTimeout } from "./with-timeout.ts";

/** A lock store that takes longer is left out: the run is shown in any case. */
const LONGEST_LOOK: Millis = 1_000;

/** Resolves to a description of the holder of each lock that the run waits for, if it has one. Never rejects. */
export async function holdersFor(
  { waitsFor, inProgress }: RunInfo,
  locks: LockStore,
): Promise<ReadonlyMap<string, string>> {
  const names = [waitsFor, ...inProgress.map((step) => step.waitsFor)];
  const busy = [...new Set(names.filter((name) => name !== undefined))];
  const described = await Promise.all(
    busy.map(async (name) => [name, await describeHolder(name, locks)] as const),
  );
  return new Map(described.filter((entry): entry is [string, string] => entry[1] !== undefined));
}

async function describeHolder(name: string, locks: LockStore): Promise<string | undefined> {
  const { holder, about } = (await withTimeout(LONGEST_LOOK, locks.inspect(name))) ?? {};
  const work = [about?.value, about?.command, about?.run, about?.step].filter(Boolean).join(" · ");
  return holder && work ? `${holder} (${work})` : holder;
}
