import type { Journal } from "../../../journal/journal.ts";
import { quote } from "../../../lock/errors.ts";
import { purgeRates } from "./limits.ts";
import {
  deleteItems,
  endOf,
  fromTimed,
  type Head,
  type JournalContext,
  kept,
  SHARDS,
  startPlace,
  timed,
} from "./runs.ts";
import { writeAgain } from "./values.ts";

/** Deletes expired runs, and rates of keys that no claim has used in advance. */
export async function purge(context: JournalContext, limit: number): ReturnType<Journal["purge"]> {
  let purged = 0;
  for await (const runId of expiredRuns(context)) {
    if (await deleteExpired(context, runId)) purged += 1;
    if (purged === limit) break;
  }
  await purgeRates(context);
  return purged;
}

/** Yields the ids of expired runs. Reads no page before its first one is asked for. */
async function* expiredRuns({ dynamodb, clock }: JournalContext): AsyncGenerator<string> {
  for (const shard of SHARDS) {
    const sentAt = performance.now();
    const to = endOf(timed(clock.now(), ""));
    const range = { pk: `expiry/${shard}`, from: "0", to, limit: 100 };
    for await (const { items, time } of dynamodb.query(range)) {
      clock.see(time, sentAt);
      for (const { sk = "" } of items) yield fromTimed(sk).id;
    }
  }
}

/** First ends the run for every clock, so that nobody reopens it while its items are deleted. */
async function deleteExpired(context: JournalContext, runId: string): Promise<boolean> {
  const { dynamodb, runs } = context;
  const expired = await runs.change<Head | undefined>({
    ids: [runId],
    what: `run ${quote(runId)} was purged`,
    plan([head], now) {
      if (!head || kept(head, now)) return { result: undefined };
      const gone = { ...head, expiresAt: 0 };
      return { docs: [gone], result: gone };
    },
  });
  if (!expired) return false;
  await deleteItems(dynamodb, expired);
  if (expired.startKey !== undefined) {
    const key = startPlace(expired.workflow, expired.startKey);
    await writeAgain(dynamodb, [{ key, when: "#runId = :runId", values: { runId } }]);
  }
  await runs.change<void>({
    ids: [runId],
    what: `run ${quote(runId)} was purged`,
    plan([head]) {
      const isSame = head?.instance === expired.instance;
      return { docs: [isSame ? undefined : head], result: undefined };
    },
  });
  return true;
}
