import { MOST_FORKS } from "../../../journal/journal.ts";
import type { QueueDepth, RunDetails, RunInfo, RunQuery } from "../../../journal/queries.ts";
import type { RecordPage } from "../../../journal/records.ts";
import { isOpen, type RunStatus } from "../../../journal/runs.ts";
import { unknownCursor } from "../../../journal/validated.ts";
import type { Dynamodb } from "../client/dynamodb.ts";
import { endingOf, storedValueOf } from "./lease.ts";
import { pageOf, readKept } from "./records.ts";
import {
  endOf,
  fromTimed,
  type Head,
  isDue,
  type JournalContext,
  partitionOf,
  readRuns,
  SHARDS,
  timed,
  toInfo,
} from "./runs.ts";
import { readSignals } from "./signals.ts";
import { readRange, readStored } from "./values.ts";

/** Reads the lists of runs side by side, the newest first. */
export async function list(
  context: JournalContext,
  { workflow, status, queue, key, after, limit = 100 }: RunQuery,
): Promise<readonly RunInfo[]> {
  const [last] = after === undefined ? [] : await context.runs.read([after]);
  if (after !== undefined && !last) throw unknownCursor(after);
  const to = last ? timed(last.startedAt, last.runId) : endOf("9");
  const isWanted = (head: Head) =>
    head.runId !== after &&
    head.workflow === (workflow ?? head.workflow) &&
    head.status === (status ?? head.status) &&
    head.queue === (queue ?? head.queue) &&
    head.key === (key ?? head.key);
  const found: RunInfo[] = [];
  const seen = new Set<string>();
  let ids: string[] = [];
  const flush = async () => {
    const heads = await readRuns(context, ids);
    ids = [];
    found.push(...(await Promise.all(heads.filter(isWanted).map((head) => infoOf(context, head)))));
  };
  for await (const sk of newestFirst(context, listsFor(status), to)) {
    const { id } = fromTimed(sk);
    if (!seen.has(id)) ids.push(id);
    seen.add(id);
    if (ids.length === 100) await flush();
    if (found.length >= limit) break;
  }
  await flush();
  return found.slice(0, limit);
}

/** Reads nothing but errors that are too long for the run's own item. */
export async function infoOf(context: JournalContext, head: Head): Promise<RunInfo> {
  const error = head.status === "blocked" ? await storedValueOf(context, head) : undefined;
  return { ...toInfo(head), error };
}

/** A run keeps its place in the list of all when it ends: none is missed. */
function listsFor(status: RunStatus | undefined): readonly string[] {
  const name = status !== undefined && isOpen(status) ? "open" : "all";
  return SHARDS.map((shard) => `${name}/${shard}`);
}

/** Merges the places of several lists, each of which is in order. */
async function* newestFirst(
  { dynamodb }: JournalContext,
  lists: readonly string[],
  to: string,
): AsyncGenerator<string> {
  const readers = lists.map((pk) => placesOf(dynamodb, pk, to));
  const next = await Promise.all(readers.map((reader) => reader.next()));
  for (;;) {
    const heads = next.map(({ done, value }) => (done ? "" : value));
    const newest = heads.reduce((best, sk) => (sk > best ? sk : best), "");
    if (newest === "") return;
    yield newest;
    const at = heads.indexOf(newest);
    const reader = readers[at];
    if (reader) next[at] = await reader.next();
  }
}

async function* placesOf(
  dynamodb: Dynamodb,
  pk: string,
  to: string,
): AsyncGenerator<string, "", undefined> {
  const range = { pk, from: "0", to, descending: true, limit: 100 };
  for await (const { items } of dynamodb.query(range)) yield* items.map(({ sk = "" }) => sk);
  return "";
}

export async function queueDepths(context: JournalContext): Promise<readonly QueueDepth[]> {
  const places = await Promise.all(
    SHARDS.map((shard) =>
      readRange(context.dynamodb, { pk: `open/${shard}`, from: "0", to: endOf("9") }),
    ),
  );
  const ids = places.flat().map(({ sk = "" }) => fromTimed(sk).id);
  const open = (await readRuns(context, ids)).filter(({ status }) => isOpen(status));
  const now = context.clock.now();
  const queues = [...Map.groupBy(open, ({ queue }) => queue)].map(([queue, all]) => {
    const count = (status: RunStatus) => all.filter((run) => run.status === status).length;
    const due = all.filter((run) => isDue(run, now));
    const oldest = Math.min(now, ...due.map(({ dueAt = now }) => dueAt));
    return {
      queue,
      running: count("running"),
      parked: count("parked"),
      blocked: count("blocked"),
      due: due.length,
      oldestDueFor: now - oldest,
    };
  });
  return queues.sort((a, b) => (a.queue < b.queue ? -1 : 1));
}

export async function show(
  context: JournalContext,
  runId: string,
  page?: RecordPage,
): Promise<RunDetails | undefined> {
  const head = await readKept(context, runId);
  if (!head) return undefined;
  const forks = await readRange(context.dynamodb, {
    pk: `forks/${runId}`,
    from: "0",
    to: endOf("9"),
  });
  const ids = forks.map(({ sk = "" }) => fromTimed(sk).id);
  const [info, records, signals, input, ending, existing] = await Promise.all([
    infoOf(context, head),
    pageOf(context, head, page),
    readSignals(context, head),
    readStored(context.dynamodb, partitionOf(runId), head.input),
    endingOf(context, head),
    readRuns(context, ids),
  ]);
  return {
    ...info,
    ...records,
    input,
    signals,
    ending,
    forks: existing.slice(0, MOST_FORKS).map((fork) => fork.runId),
    now: new Date(context.clock.now()),
  };
}
