import { StoreUnavailableError } from "../../../lock/errors.ts";
import { backoff, retry, retryUntilKnown } from "../../../lock/retry.ts";
import type { Dynamodb, ItemWrite } from "../client/dynamodb.ts";
import type { Item, ItemKey } from "../client/items.ts";

/** A text in its document, or the place of its chunks in the same partition. */
export type Stored = string | StoredChunks;

interface StoredChunks {
  /** The start of their places. */
  readonly at: string;
  readonly chunks: number;
}

/** The longest text in the item of a run, which each write to the run writes anew. */
export const LONGEST_IN_HEAD = 1_000;

/** The longest text in an item of its own. An escaped character has at most 6 bytes. */
export const LONGEST_IN_ITEM = 30_000;

/** The longest input or answer in an item: a transaction has up to 32 of each, and at most 4 MB. */
export const LONGEST_IN_MESSAGE = 10_000;

/** An item has at most 400 kB, and a character at most 3 bytes per unit of its length. */
const CHUNK = 120_000;

/** The most chunks that are written at a time. */
const AT_ONCE = 8;

/** How often a text is read that others replace. */
const READS = 8;

/** Deletions in one transaction. DynamoDB counts the bytes of the items: at most 4 MB. */
const CHUNKS_DELETED = 10;
const ITEMS_DELETED = 40;

/** A text was deleted while it was read: its document has changed since. */
export class TornReadError extends StoreUnavailableError {}

/** Reads documents and their texts, again if one of them has changed meanwhile. */
export function readUntorn<T>(read: () => Promise<T>): Promise<T> {
  return retry(read, (error, count) =>
    error instanceof TornReadError && count < READS ? backoff(count) : undefined,
  );
}

/** Writes what may be written twice, again after a lost answer. */
export async function writeAgain(
  dynamodb: Dynamodb,
  writes: readonly ItemWrite[],
  signal?: AbortSignal,
): Promise<void> {
  const what = "items of the journal were written";
  await retryUntilKnown(dynamodb.address, what, signal, (limit) => dynamodb.write(writes, limit));
}

/** Writes a text in chunks, before the document that names them. */
export async function storeChunks(
  dynamodb: Dynamodb,
  { pk, sk }: ItemKey,
  text: string,
  signal?: AbortSignal,
): Promise<Stored> {
  const at = `${sk}/${crypto.randomUUID()}`;
  const chunks = chunksOf(text);
  const writes = chunks.map((chunk, i) => ({
    key: { pk, sk: placeOf(at, i) },
    update: "SET #chunk = :chunk",
    values: { chunk },
  }));
  for (const some of batchesOf(writes, AT_ONCE)) {
    await Promise.all(some.map((write) => writeAgain(dynamodb, [write], signal)));
  }
  return { at, chunks: chunks.length };
}

/** Writes a text that is longer than `longest` in chunks. */
export async function store(
  dynamodb: Dynamodb,
  key: ItemKey,
  text: string,
  longest: number,
  signal?: AbortSignal,
): Promise<Stored> {
  return text.length <= longest ? text : storeChunks(dynamodb, key, text, signal);
}

export async function readStored(
  dynamodb: Dynamodb,
  pk: string,
  stored: Stored,
  signal?: AbortSignal,
): Promise<string> {
  if (typeof stored === "string") return stored;
  const { at, chunks } = stored;
  const range = { pk, from: placeOf(at, 0), to: placeOf(at, chunks - 1), limit: 100 };
  const texts: string[] = [];
  for await (const { items } of dynamodb.query({ ...range, ...(signal && { signal }) })) {
    texts.push(...items.map(({ chunk = "" }) => chunk));
  }
  if (texts.length < chunks) {
    throw new TornReadError(dynamodb.address, "a text was replaced or deleted while it was read");
  }
  return texts.join("");
}

/** The most items of a read of single items. */
const MOST_READ = 100;

/** Reads items, each for itself, in the order of their keys. */
export async function readItems(
  dynamodb: Dynamodb,
  keys: readonly ItemKey[],
): Promise<readonly (Item | undefined)[]> {
  const found: (Item | undefined)[] = [];
  for (const some of batchesOf(keys, MOST_READ)) found.push(...(await dynamodb.read(some)).items);
  return found;
}

/** A range of keys within a partition. */
interface KeyRange {
  readonly pk: string;
  readonly from: string;
  readonly to: string;
}

/** Reads all items of a range. */
export async function readRange(dynamodb: Dynamodb, range: KeyRange): Promise<readonly Item[]> {
  const found: Item[] = [];
  for await (const { items } of dynamodb.query({ ...range, limit: 1_000 })) found.push(...items);
  return found;
}

/** Deletes all items of a range. */
export async function deleteRange(dynamodb: Dynamodb, range: KeyRange): Promise<void> {
  for await (const { items } of dynamodb.query({ ...range, limit: 100 })) {
    await deleteAll(
      dynamodb,
      items.map(({ pk = "", sk = "" }) => ({ pk, sk })),
    );
  }
}

export async function deleteAll(dynamodb: Dynamodb, keys: readonly ItemKey[]): Promise<void> {
  const [chunks, others] = [keys.filter(isChunk), keys.filter((key) => !isChunk(key))] as const;
  const batches = [...batchesOf(chunks, CHUNKS_DELETED), ...batchesOf(others, ITEMS_DELETED)];
  for (const batch of batches) {
    await writeAgain(
      dynamodb,
      batch.map((key): ItemWrite => ({ key })),
    );
  }
}

function isChunk({ sk }: ItemKey): boolean {
  return /(^|\/)(value|payload)\//.test(sk);
}

export function batchesOf<T>(all: readonly T[], size: number): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, i) =>
    all.slice(i * size, (i + 1) * size),
  );
}

/** Cuts a text between its characters. */
function chunksOf(text: string): readonly string[] {
  const chunks: string[] = [];
  for (let from = 0; from < text.length || from === 0; ) {
    const end = from + CHUNK;
    const isWithin = /[\ud800-\udbff]/.test(text.charAt(end - 1)) && end < text.length;
    const to = isWithin ? end - 1 : end;
    chunks.push(text.slice(from, to));
    from = to;
  }
  return chunks;
}

function placeOf(at: string, chunk: number): string {
  return `${at}/${String(chunk).padStart(5, "0")}`;
}
