import type { ForkRequest } from "../../../journal/changes.ts";
import type { NewRun, RunKey, StartedRun } from "../../../journal/runs.ts";
import { supersededPrefix } from "../../../journal/superseded.ts";
import { quote } from "../../../lock/errors.ts";
import type { ItemWrite } from "../client/dynamodb.ts";
import type { ChangePlan } from "./documents.ts";
import { maker, stateOf } from "./lease.ts";
import { type RecordText, readTexts, renameRecords, writeRecord } from "./records.ts";
import {
  create,
  type Head,
  held,
  itemOf,
  type JournalContext,
  kept,
  once,
  partitionOf,
  storeIn,
  valuesOf,
} from "./runs.ts";
import { readSignalTexts, writeSignal } from "./signals.ts";
import {
  batchesOf,
  deleteRange,
  LONGEST_IN_ITEM,
  readStored,
  type Stored,
  store,
  storeChunks,
  writeAgain,
} from "./values.ts";

/** The most new runs in one transaction: each writes or deletes up to nine items. */
const RUNS_AT_ONCE = 10;

/** Creates the runs that do not exist. */
export async function startRuns(
  context: JournalContext,
  runs: readonly NewRun[],
  parent: RunKey | undefined,
  signal: AbortSignal | undefined,
): Promise<readonly StartedRun[]> {
  const started: StartedRun[] = [];
  for (const some of batchesOf(runs, RUNS_AT_ONCE)) {
    started.push(...(await startSome(context, some, parent, signal)));
  }
  return started;
}

function startSome(
  context: JournalContext,
  runs: readonly NewRun[],
  parent: RunKey | undefined,
  signal: AbortSignal | undefined,
): Promise<readonly StartedRun[]> {
  const makers = runs.map(() => maker(context));
  const own = runs.map(({ runId }) => runId);
  // A run with its parent's id is a conflict.
  const ids = parent && !own.includes(parent.runId) ? [...own, parent.runId] : own;
  return context.runs.change<readonly StartedRun[]>({
    ids,
    what: "runs were started",
    signal,
    async plan(found, now) {
      const holder = parent && held(found[ids.indexOf(parent.runId)], parent, now);
      const heads = await Promise.all(
        ids.map((_, i) => kept(found[i], now) ?? makers[i]?.(runs[i] as NewRun, now, found[i])),
      );
      const isNew = heads.some((head, i) => head !== found[i]);
      const states = runs.map((run, i) => toStarted(context, heads[i] as Head, run, now));
      return {
        // The holder's run is written as it is: the transaction is refused if another process claims it.
        docs: isNew ? heads.map((head) => (head && head === holder ? { ...head } : head)) : found,
        result: await Promise.all(states),
      };
    },
  });
}

async function toStarted(
  context: JournalContext,
  head: Head,
  { workflow, inputHash }: NewRun,
  now: number,
): Promise<StartedRun> {
  const isSame = head.workflow === workflow && head.inputHash === inputHash;
  if (!isSame) return { kind: "conflict" };
  return { parent: head.parent, ...(await stateOf(context, head, now)) };
}

/** Copies records and signals to places that nobody reads, and then creates the run that has them. */
export async function fork(
  context: JournalContext,
  origin: RunKey,
  request: ForkRequest,
): Promise<"forked" | "changed" | "conflict"> {
  const { runId, step } = request;
  let made: Head | undefined;
  const copy = once((source: Head, fork: Head) => copyTo(context, source, fork, request));
  const answer = await context.runs.change<"forked" | "changed" | "conflict">({
    ids: origin.runId === runId ? [runId] : [origin.runId, runId],
    what: `run ${quote(origin.runId)} was forked to ${quote(runId)}`,
    async plan(found, now): Promise<ChangePlan<Head, "forked" | "changed" | "conflict">> {
      const [source, existing] = [found[0], found.at(-1)];
      const known = kept(existing, now);
      if (known) {
        const isSame = known.origin?.runId === origin.runId && known.origin.step === step;
        return { result: isSame ? "forked" : "conflict" };
      }
      const head = kept(source, now);
      const isSame = head?.epoch === String(origin.epoch) && head.part === (made ?? head).part;
      if (!isSame) return { result: "changed" };
      const { workflow, version, inputHash, queue, key, priority } = head;
      const turn = { queue, key, priority };
      const { owner } = request;
      const run = { runId, workflow, version, input: "", inputHash, owner, turn };
      const fresh: Head = {
        ...create(run, now, existing),
        part: head.part,
        origin: { runId: origin.runId, step },
        signals: request.signals.length,
        records: head.records + 1,
        lastAt: Math.max(now, head.lastAt),
      };
      made ??= fresh;
      const input = await copy(head, made);
      // The origin is written as it is: the transaction is refused if it has changed since the copy.
      const docs = [{ ...head }, { ...fresh, instance: made.instance, input }];
      return { docs, result: "forked" };
    },
  });
  const [winner] = made ? await context.runs.read([runId]) : [];
  // Another call was first.
  if (made && winner?.instance !== made.instance) await deleteCopies(context, made);
  return answer;
}

async function deleteCopies(context: JournalContext, { runId, instance }: Head): Promise<void> {
  const { pk, sk: from } = itemOf({ runId, instance } as Head, "");
  await deleteRange(context.dynamodb, { pk, from, to: `${instance}0` });
}

/** Items in one transaction. */
const COPIED_AT_ONCE = 40;

/** Copies the records, the signals and the input. Resolves to the input. */
async function copyTo(
  context: JournalContext,
  source: Head,
  fork: Head,
  { keep, supersede, signals, mark }: ForkRequest,
): Promise<Stored> {
  const { dynamodb } = context;
  await renameRecords(dynamodb, source);
  const prefix = supersededPrefix(BigInt(source.epoch));
  const kept = new Set(keep);
  const texts = await readTexts(dynamodb, source, [...new Set([...keep, ...supersede])]);
  const writes: ItemWrite[] = [];
  for (const { number, text } of texts) {
    const key = kept.has(text.key) ? text.key : prefix + text.key;
    writes.push(...writeRecord(fork, number, { ...text, key, ...(await moved(text)) }));
  }
  const { value, ...rest } = mark;
  const marked: RecordText = { ...rest, value, epoch: source.epoch, at: fork.lastAt };
  writes.push(...writeRecord(fork, fork.records, marked));
  const wanted = new Set(signals);
  const copied = (await readSignalTexts(context, source)).filter(({ number }) =>
    wanted.has(number),
  );
  for (const [i, { text }] of copied.entries()) {
    const payload = await inFork(text.payload, LONGEST_IN_ITEM);
    writes.push(...writeSignal(fork, i + 1, { ...text, payload }));
  }
  // Nobody else writes there: the copies need no conditions, and are made again after a lost answer.
  const plain = writes.map(({ when: _, ...write }) => write);
  for (const some of batchesOf(plain, COPIED_AT_ONCE)) await writeAgain(dynamodb, some);
  const input = await readStored(dynamodb, partitionOf(source.runId), source.input);
  return storeIn(context, fork, input);

  async function inFork(stored: Stored, longest: number): Promise<Stored> {
    if (typeof stored === "string") return stored;
    const text = await readStored(dynamodb, partitionOf(source.runId), stored);
    return store(dynamodb, valuesOf(fork), text, longest);
  }

  async function moved({ value, valueBytes }: RecordText): Promise<Pick<RecordText, "value">> {
    if (value === undefined || typeof value === "string") return {};
    if (valueBytes === undefined) return { value: await inFork(value, LONGEST_IN_ITEM) };
    const text = await readStored(dynamodb, partitionOf(source.runId), value);
    return { value: await storeChunks(dynamodb, valuesOf(fork), text) };
  }
}
