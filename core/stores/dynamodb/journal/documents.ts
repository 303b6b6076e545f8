import { follow } from "../../../lock/abort.ts";
import { StoreUnavailableError } from "../../../lock/errors.ts";
import { KeyedQueue } from "../../../lock/keyed-queue.ts";
import { RecentMap } from "../../../lock/recent-map.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { after, elapsedSince, instant, LONGEST_CALL } from "../../../lock/time.ts";
import type { Dynamodb, ItemWrite, TransactWrite } from "../client/dynamodb.ts";
import type { Item, ItemKey } from "../client/items.ts";
import type { Refusal } from "../client/transaction.ts";
import type { TableClock } from "./clock.ts";
import { TornReadError } from "./values.ts";

/** An item that is found by what a document says, and that changes with it. */
export interface Entry extends ItemKey {
  readonly about?: object;
}

/** Documents of one kind: JSON texts, each in an item with a version. */
export interface DocumentKind<Doc> {
  keyOf(id: string): ItemKey;
  entriesOf(doc: Doc): readonly Entry[];
}

/** Deletes the items that only the former document named. Called after the write; after a failure these items stay. */
export type CleanUp<Doc> = (before: Doc, after: Doc) => Promise<void>;

/** The writes of a change, in one transaction. */
export interface ChangePlan<Doc, Result> {
  /** The documents afterwards, in the order of the ids. The same object: no change. Undefined: deleted. Default: all the same. */
  readonly docs?: readonly (Doc | undefined)[];

  /** Further writes. */
  readonly writes?: readonly TransactWrite[];
  readonly result: Result;

  /** Called when the condition of one of these writes did not hold, before the change is planned anew. May throw. */
  refused?(answer: Refusal): void;
}

export interface ChangeRequest<Doc, Result> {
  readonly ids: readonly string[];

  /** The name of the changed thing, for messages. */
  readonly what: string;
  readonly signal?: AbortSignal | undefined;

  /**
   * Whether the plan may start from the documents that this process has in memory, which saves reads. A plan without a
   * write, and a plan that throws, is made anew with documents that were read.
   */
  readonly fromMemory?: boolean;

  /** Called with the documents as they are, and the time; again when another process was first. */
  plan(
    docs: readonly (Doc | undefined)[],
    now: number,
  ): ChangePlan<Doc, Result> | Promise<ChangePlan<Doc, Result>>;
}

interface Known<Doc> {
  readonly doc: Doc;

  /** Of the last write. */
  readonly version: string;

  /** The versions of the last writes: a repetition after a lost answer finds its own. */
  readonly recent: readonly string[];
}

/** The writes of a document that are known after a lost answer. */
const MOST_RECENT = 16;

/**
 * Changes documents with their entries, each change only if no other client has changed its documents meanwhile.
 *
 * Changes of one document through this object come one after another.
 */
export class Documents<Doc extends object> {
  readonly #dynamodb: Dynamodb;
  readonly #clock: TableClock;
  readonly #kind: DocumentKind<Doc>;
  readonly #cleanUp: CleanUp<Doc>;
  readonly #known = new RecentMap<Known<Doc>>();
  readonly #queue = new KeyedQueue(Number.POSITIVE_INFINITY);

  /** When the last change was done. */
  #answeredAt = instant();

  constructor(
    dynamodb: Dynamodb,
    clock: TableClock,
    kind: DocumentKind<Doc>,
    cleanUp: CleanUp<Doc>,
  ) {
    this.#dynamodb = dynamodb;
    this.#clock = clock;
    this.#kind = kind;
    this.#cleanUp = cleanUp;
  }

  /** Reads at most 100 documents. */
  async read(ids: readonly string[], signal?: AbortSignal): Promise<readonly (Doc | undefined)[]> {
    return (await this.#read(ids, signal)).map((known) => known?.doc);
  }

  async change<Result>(request: ChangeRequest<Doc, Result>): Promise<Result> {
    const { ids, signal } = request;
    const entered: string[] = [];
    let done: Done<Doc, Result>;
    try {
      for (const id of ids.toSorted()) {
        if (!this.#queue.tryEnter(id)) await this.#waitForTurn(id, signal);
        entered.push(id);
      }
      done = await this.#changeInTurn(request);
      this.#answeredAt = instant();
    } finally {
      for (const id of entered) this.#queue.leave(id);
    }
    for (const { before, after } of done.changes) {
      if (before && after) await this.#cleanUp(before, after.doc).catch(() => {});
    }
    return done.result;
  }

  /** Waits as long as the server answers the calls before this one: it may have been silent for 10 s at the most. */
  async #waitForTurn(id: string, signal: AbortSignal | undefined): Promise<void> {
    const late = new AbortController();
    using limit = follow(late.signal, signal);
    const startedAt = instant();
    const check = () => {
      const silent = Math.min(elapsedSince(startedAt), elapsedSince(this.#answeredAt));
      if (silent < LONGEST_CALL) cancel = after(LONGEST_CALL - silent, check);
      else late.abort(new StoreUnavailableError(this.#dynamodb.address, "no answer"));
    };
    let cancel = after(LONGEST_CALL, check);
    try {
      await this.#queue.enter(id, limit.signal);
    } finally {
      cancel();
    }
  }

  #changeInTurn<Result>(request: ChangeRequest<Doc, Result>): Promise<Done<Doc, Result>> {
    const { ids, what, signal, fromMemory = false, plan } = request;
    const tried = new Map<string, Done<Doc, Result>>();
    let before = fromMemory && this.#clock.isFresh ? this.#remembered(ids) : undefined;
    return retryUntilKnown(this.#dynamodb.address, what, signal, async (limit) => {
      const isRead = before === undefined;
      const found = before ?? (await this.#read(ids, limit));
      before = undefined;
      const mine = found.flatMap((known) => known?.recent ?? []).find((mark) => tried.has(mark));
      if (mine !== undefined) return tried.get(mine);
      const docs = found.map((known) => known?.doc);
      const planned = await planAgain(() => plan(docs, this.#clock.now()), isRead);
      if (planned === undefined) return undefined;
      const mark = newMark();
      const changes = ids.flatMap((id, i) => this.#changeOf(id, found[i], planned, i, mark));
      const writes = [...changes.flatMap(({ writes }) => writes), ...(planned.writes ?? [])];
      const outcome = { result: planned.result, changes };
      if (writes.length === 0) return isRead ? outcome : undefined;
      for (const id of ids) this.#known.delete(id);
      tried.set(mark, outcome);
      const { done, failed, items } = await this.#dynamodb.write(writes, limit);
      if (done) {
        for (const { id, after } of changes) if (after) this.#known.set(id, after);
        return outcome;
      }
      tried.delete(mark);
      const own = writes.length - (planned.writes?.length ?? 0);
      const refusal = { failed: failed.slice(own), items: items.slice(own) };
      if (refusal.failed.includes(true)) planned.refused?.(refusal);
      return undefined;
    });
  }

  /** Empty for a document that stays as it is. */
  #changeOf<Result>(
    id: string,
    known: Known<Doc> | undefined,
    { docs }: ChangePlan<Doc, Result>,
    at: number,
    mark: string,
  ): readonly Change<Doc>[] {
    const doc = docs?.[at];
    if (docs === undefined || doc === known?.doc) return [];
    const key = this.#kind.keyOf(id);
    const before = known ? this.#kind.entriesOf(known.doc) : [];
    const when = known ? "#version = :seen" : "attribute_not_exists(#pk)";
    const seen = known?.version ?? "";
    if (doc === undefined) {
      const gone = { key, when, values: { seen } };
      return [
        { id, before: known?.doc, after: undefined, writes: [gone, ...changedEntries(before, [])] },
      ];
    }
    const recent = [mark, ...(known?.recent ?? [])].slice(0, MOST_RECENT);
    const written = {
      key,
      update: "SET #doc = :doc, #version = :mark, #recent = :recent",
      when,
      values: { seen, mark, doc: JSON.stringify(doc), recent: recent.join(" ") },
    };
    const entries = changedEntries(before, this.#kind.entriesOf(doc));
    const after = { doc, version: mark, recent };
    return [{ id, before: known?.doc, after, writes: [written, ...entries] }];
  }

  #remembered(ids: readonly string[]): readonly Known<Doc>[] | undefined {
    const known = ids.flatMap((id) => this.#known.get(id) ?? []);
    return known.length === ids.length ? known : undefined;
  }

  async #read(
    ids: readonly string[],
    signal: AbortSignal | undefined,
  ): Promise<readonly (Known<Doc> | undefined)[]> {
    const sentAt = performance.now();
    const keys = ids.map((id) => this.#kind.keyOf(id));
    const { items, time } = await this.#dynamodb.read(keys, signal);
    this.#clock.see(time, sentAt);
    return items.map((item) => item && toKnown(item));
  }
}

/** The writes for one document, and what is known after them. */
interface Change<Doc> {
  readonly id: string;
  readonly before: Doc | undefined;

  /** The document after the change; undefined after a deletion. */
  readonly after: Known<Doc> | undefined;
  readonly writes: readonly ItemWrite[];
}

interface Done<Doc, Result> {
  readonly result: Result;
  readonly changes: readonly Change<Doc>[];
}

/** Resolves to undefined after a failure with documents that were not read, or that have changed since. */
async function planAgain<T>(plan: () => T | Promise<T>, isRead: boolean): Promise<T | undefined> {
  try {
    return await plan();
  } catch (error) {
    if (isRead && !(error instanceof TornReadError)) throw error;
    return undefined;
  }
}

function toKnown<Doc>({ doc = "", version = "", recent = "" }: Item): Known<Doc> {
  return { doc: JSON.parse(doc), version, recent: recent.split(" ") };
}

function newMark(): string {
  return crypto.randomUUID().slice(0, 13);
}

/** Returns the writes of new and changed entries, and the deletions of removed ones. */
function changedEntries(before: readonly Entry[], after: readonly Entry[]): readonly ItemWrite[] {
  const idOf = ({ pk, sk }: Entry) => `${pk}\0${sk}`;
  const textOf = ({ about = {} }: Entry) => JSON.stringify(about);
  const old = new Map(before.map((entry) => [idOf(entry), textOf(entry)]));
  const kept = new Set(after.map(idOf));
  const gone = before.filter((entry) => !kept.has(idOf(entry)));
  const changed = after.filter((entry) => old.get(idOf(entry)) !== textOf(entry));
  return [
    ...gone.map(({ pk, sk }) => ({ key: { pk, sk } })),
    ...changed.map((entry) => ({
      key: { pk: entry.pk, sk: entry.sk },
      update: "SET #about = :about",
      values: { about: textOf(entry) },
    })),
  ];
}
