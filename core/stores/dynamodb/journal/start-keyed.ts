import {
  isDebounced,
  isOpen,
  type KeyedRun,
  type KeyedStart,
  type NewRun,
} from "../../../journal/runs.ts";
import { quote } from "../../../lock/errors.ts";
import type { ChangePlan } from "./documents.ts";
import { maker, stateOf } from "./lease.ts";
import {
  create,
  type Head,
  type JournalContext,
  kept,
  once,
  startPlace,
  storeIn,
  timeIn,
} from "./runs.ts";

/** Creates the run, or finds the one that is there. The item of the key orders concurrent starts. */
export async function startKeyed(
  context: JournalContext,
  run: NewRun,
  { key, quiet }: KeyedStart,
  signal: AbortSignal | undefined,
): Promise<KeyedRun> {
  const { dynamodb, runs } = context;
  const place = startPlace(run.workflow, key);
  const make = maker(context);
  for (;;) {
    // Within the loop: the next round may find another run.
    const input = once((head: Head) => storeIn(context, head, run.input));
    const last = (await dynamodb.get(place, signal))?.runId;
    const claim = {
      key: place,
      update: "SET #runId = :runId",
      when: last === undefined ? "attribute_not_exists(#pk)" : "#runId = :last",
      values: { runId: run.runId, last: last ?? "" },
    };
    let isOther = false;
    const started = await runs.change<KeyedRun | undefined>({
      ids: last === undefined || last === run.runId ? [run.runId] : [last, run.runId],
      what: `a run of ${quote(run.workflow)} was started`,
      signal,
      async plan(found, now): Promise<ChangePlan<Head, KeyedRun | undefined>> {
        if (isOther) return { result: undefined };
        const known = last === undefined ? undefined : kept(found[0], now);
        // A repetition after a lost answer.
        if (known && last === run.runId) return { result: await toStarted(known, now) };
        if (known && isSame(known, quiet)) {
          const head =
            quiet === undefined ? known : debounced({ ...known, input: await input(known) }, now);
          return { docs: found.with(0, head), result: await toStarted(head, now) };
        }
        const made = await make(run, now, found.at(-1));
        const waits = quiet === undefined ? {} : { reason: "debounce" as const };
        const dueAt = timeIn(now, quiet ?? 0);
        const head: Head = { ...made, ...waits, dueAt, startKey: key };
        return {
          docs: found.with(-1, head),
          writes: [claim],
          result: await toStarted(head, now),
          refused() {
            isOther = true;
          },
        };
      },
    });
    if (started) return started;
  }

  async function toStarted(head: Head, now: number): Promise<KeyedRun> {
    const { runId, cancelled } = head;
    return { runId, cancelled, ...(await stateOf(context, head, now)) };
  }

  /** A run that waits for its first execution, with the new input and a new wait. */
  function debounced(head: Head, now: number): Head {
    const { version, inputHash, queue, key: turnKey, priority } = create(run, now);
    const latest = { version, inputHash, queue, key: turnKey, priority, changedAt: now };
    return { ...head, ...latest, dueAt: timeIn(now, quiet ?? 0) };
  }
}

/** Whether the start does not need a new run. */
function isSame(head: Head, quiet: number | undefined): boolean {
  if (quiet === undefined) return isOpen(head.status);
  return isDebounced(head) && !head.cancelled;
}
