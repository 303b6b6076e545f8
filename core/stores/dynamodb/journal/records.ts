import { largeResult } from "../../../journal/large-result.ts";
import {
  type NewRecord,
  type PageOfRecords,
  RECORDS_PER_PAGE,
  type RecordPage,
  type StepRecord,
} from "../../../journal/records.ts";
import type { RunKey } from "../../../journal/runs.ts";
import { supersededPrefix } from "../../../journal/superseded.ts";
import { unknownPage } from "../../../journal/validated.ts";
import { quote } from "../../../lock/errors.ts";
import type { Dynamodb, ItemWrite } from "../client/dynamodb.ts";
import type { Item, ItemKey } from "../client/items.ts";
import type { ChangePlan } from "./documents.ts";
import {
  endOf,
  type Head,
  held,
  itemOf,
  type JournalContext,
  kept,
  once,
  padded,
  partitionOf,
  valuesOf,
  writeNumbered,
} from "./runs.ts";
import {
  LONGEST_IN_ITEM,
  readItems,
  readStored,
  type Stored,
  store,
  storeChunks,
} from "./values.ts";

/** A record as its item has it. */
export interface RecordText extends Omit<NewRecord, "value"> {
  readonly value?: Stored | undefined;
  readonly valueBytes?: number | undefined;

  /** A bigint. */
  readonly epoch: string;
  readonly at: number;
}

/** The places of a run's records are in the order of their numbers. A place for each key says its record's number. */
export function recordPlace(head: Head, number: number, part = head.part): ItemKey {
  return itemOf(head, `record/${padded(part)}/${padded(number)}`);
}

export function keyPlace(head: Head, key: string, part = head.part): ItemKey {
  return itemOf(head, `key/${padded(part)}/${key}`);
}

export async function append(
  context: JournalContext,
  run: RunKey,
  record: NewRecord,
  signal: AbortSignal | undefined,
): Promise<StepRecord> {
  const { dynamodb } = context;
  const stored = await valueIn(context, run, record, signal);
  let isKnown = false;
  return context.runs.change({
    ids: [run.runId],
    what: `record ${quote(record.key)} of run ${quote(run.runId)} was written`,
    signal,
    fromMemory: true,
    async plan([found], now): Promise<ChangePlan<Head, StepRecord>> {
      const head = held(found, run, now);
      const known = isKnown ? await readRecord(dynamodb, head, record.key) : undefined;
      if (known) return { result: known };
      const text = { ...record, ...(await stored(head)) };
      return planRecord(head, run, text, record.value, now, () => {
        isKnown = true;
      });
    },
  });
}

/** Returns a function that writes a value which needs items of its own, once, and says how the record has it. */
export async function valueIn(
  context: JournalContext,
  run: RunKey,
  record: NewRecord,
  signal: AbortSignal | undefined,
): Promise<(head: Head) => Promise<Pick<RecordText, "value" | "valueBytes">>> {
  const stored = once((head: Head) => storeValue(context.dynamodb, head, record, signal));
  if (isLong(record)) {
    // Before the change, which others wait for.
    const [found] = await context.runs.read([run.runId], signal);
    await stored(held(found, run, context.clock.now()));
  }
  return stored;
}

/** Plans to write one more record of the run, unless there is one with this key. */
export function planRecord(
  head: Head,
  run: RunKey,
  stored: Omit<RecordText, "epoch" | "at">,
  value: string | undefined,
  now: number,
  refused: NonNullable<ChangePlan<Head, StepRecord>["refused"]>,
): ChangePlan<Head, StepRecord> & { readonly docs: readonly [Head] } {
  const number = head.records + 1;
  const at = Math.max(now, head.lastAt);
  const text = { ...stored, epoch: String(run.epoch), at };
  return {
    docs: [{ ...head, records: number, lastAt: at, hasWritten: true }],
    writes: writeRecord(head, number, text),
    result: { ...stored, value, epoch: run.epoch, at: new Date(at) },
    refused,
  };
}

export function writeRecord(
  head: Head,
  number: number,
  text: RecordText,
): readonly [ItemWrite, ItemWrite] {
  return writeNumbered(recordPlace(head, number), keyPlace(head, text.key), number, text);
}

/** Whether the value needs items of its own. */
function isLong(record: NewRecord): boolean {
  return (record.value?.length ?? 0) > LONGEST_IN_ITEM || largeResult(record) !== undefined;
}

/** Writes a value that stands beside its record, or that is too long for an item. */
export async function storeValue(
  dynamodb: Dynamodb,
  head: Head,
  record: NewRecord,
  signal: AbortSignal | undefined,
): Promise<Pick<RecordText, "value" | "valueBytes">> {
  const { value } = record;
  if (value === undefined) return { value };
  const valueBytes = largeResult(record)?.length;
  const place = valuesOf(head);
  return valueBytes === undefined
    ? { value: await store(dynamodb, place, value, LONGEST_IN_ITEM, signal) }
    : { value: await storeChunks(dynamodb, place, value, signal), valueBytes };
}

interface NumberedRecord {
  readonly number: number;
  readonly text: RecordText;
}

/** Reads the records with these keys that exist, in their order. */
export async function readTexts(
  dynamodb: Dynamodb,
  head: Head,
  keys: readonly string[],
): Promise<readonly NumberedRecord[]> {
  const places = await readItems(
    dynamodb,
    keys.map((key) => keyPlace(head, key)),
  );
  const numbers = places
    .flatMap((item) => (item ? [Number(item.number)] : []))
    .sort((a, b) => a - b);
  const items = await readItems(
    dynamodb,
    numbers.map((number) => recordPlace(head, number)),
  );
  return items.flatMap((item, i) =>
    item ? [{ number: numbers[i] ?? 0, text: JSON.parse(item.text ?? "") as RecordText }] : [],
  );
}

export async function readRecord(
  dynamodb: Dynamodb,
  head: Head,
  key: string,
): Promise<StepRecord | undefined> {
  const [found] = await readTexts(dynamodb, head, [key]);
  return found && toRecord(dynamodb, head, found.text);
}

async function toRecord(
  dynamodb: Dynamodb,
  { runId }: Head,
  { value, epoch, at, ...text }: RecordText,
): Promise<StepRecord> {
  const isInside = text.valueBytes === undefined && value !== undefined;
  return {
    ...text,
    valueBytes: text.valueBytes,
    value: isInside ? await readStored(dynamodb, partitionOf(runId), value) : undefined,
    epoch: BigInt(epoch),
    at: new Date(at),
  };
}

/** Reads a page of the run's records. A cursor is the part and the number of the last record. */
export async function pageOf(
  { dynamodb }: JournalContext,
  head: Head,
  { part = head.part, after, limit = RECORDS_PER_PAGE }: RecordPage = {},
): Promise<PageOfRecords> {
  const [, ofPart = String(part), last = "0"] =
    after === undefined ? [] : (/^(\d{1,9})\/(\d{1,9})$/.exec(after) ?? unknown(after));
  await renameRecords(dynamodb, head);
  const from = recordPlace(head, Number(last) + 1, Number(ofPart));
  const to = endOf(itemOf(head, `record/${padded(Number(ofPart))}/`).sk);
  const items: Item[] = [];
  const range = { pk: from.pk, from: from.sk, to, limit: limit + 1 };
  for await (const page of dynamodb.query(range)) {
    items.push(...page.items);
    if (items.length > limit) break;
  }
  const page = items.slice(0, limit);
  const texts = page.map(({ text = "" }) => JSON.parse(text) as RecordText);
  const number = Number(page.at(-1)?.sk?.slice(-10));
  return {
    records: await Promise.all(texts.map((text) => toRecord(dynamodb, head, text))),
    next: items.length > limit ? `${ofPart}/${number}` : undefined,
  };
}

function unknown(after: string): never {
  throw unknownPage(after);
}

/** Reads the results that stand beside their records. */
export async function readValues(
  { dynamodb }: JournalContext,
  head: Head,
  keys: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  await renameRecords(dynamodb, head);
  const found = await readTexts(dynamodb, head, keys);
  const values = await Promise.all(
    found.map(({ text }) => readStored(dynamodb, partitionOf(head.runId), text.value ?? "")),
  );
  return new Map(found.map(({ text }, i) => [text.key, values[i] ?? ""]));
}

/** Reads the last record whose key begins with `prefix`, also in the history before. */
export async function latestOf(
  { dynamodb }: JournalContext,
  head: Head,
  prefix: string,
): Promise<StepRecord | undefined> {
  await renameRecords(dynamodb, head);
  for (const part of [head.part, head.part - 1]) {
    const from = keyPlace(head, prefix, part);
    let last = 0;
    const range = { pk: from.pk, from: from.sk, to: endOf(from.sk), limit: 1_000 };
    for await (const { items } of dynamodb.query(range)) {
      last = Math.max(last, ...items.map(({ number }) => Number(number)));
    }
    const item = last > 0 ? await dynamodb.get(recordPlace(head, last, part)) : undefined;
    const text = item && (JSON.parse(item.text ?? "") as RecordText);
    if (!text) continue;
    const value = await readStored(dynamodb, from.pk, text.value ?? "");
    const record = await toRecord(dynamodb, head, text);
    return text.value === undefined ? record : { ...record, value };
  }
  return undefined;
}

/** Renames the records that a reopening has superseded. It may have been done already, or in part. */
export async function renameRecords(dynamodb: Dynamodb, head: Head): Promise<void> {
  if (!head.superseded) return;
  const { epoch, keys: stored } = head.superseded;
  const prefix = supersededPrefix(BigInt(epoch));
  const keys: readonly string[] = JSON.parse(
    await readStored(dynamodb, partitionOf(head.runId), stored),
  );
  for (let i = 0; i < keys.length; ) {
    const some = keys.slice(i, i + RENAMED_AT_ONCE);
    const found = await readTexts(dynamodb, head, some);
    // Later ones are of a claim since.
    const old = found.filter(({ number }) => number <= head.records);
    const writes = old.flatMap(({ number, text }) => rename(head, number, text, prefix));
    const { done } = writes.length > 0 ? await dynamodb.write(writes) : { done: true };
    // Otherwise another process has renamed some of them: the rest is read again.
    if (done) i += some.length;
  }
}

const RENAMED_AT_ONCE = 30;

function rename(
  head: Head,
  number: number,
  text: RecordText,
  prefix: string,
): readonly ItemWrite[] {
  const renamed = { ...text, key: prefix + text.key };
  const [written, named] = writeRecord(head, number, renamed);
  const gone = { key: keyPlace(head, text.key), when: "#number = :number", values: { number } };
  return [written, named, gone];
}

/** The run after the renaming of its records. */
export async function settled(dynamodb: Dynamodb, head: Head): Promise<Head> {
  if (!head.superseded) return head;
  await renameRecords(dynamodb, head);
  return { ...head, superseded: undefined };
}

/** Reads the run for a question about its records. */
export async function readKept(
  { runs, clock }: JournalContext,
  runId: string,
): Promise<Head | undefined> {
  const [head] = await runs.read([runId]);
  return kept(head, clock.now());
}
