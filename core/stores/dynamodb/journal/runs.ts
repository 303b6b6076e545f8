import { StaleRunError } from "../../../journal/journal.ts";
import type { RunInfo } from "../../../journal/queries.ts";
import {
  type Compensation,
  isOpen,
  type NewRun,
  type ParentRun,
  type ParkReason,
  type RunKey,
  type RunStatus,
} from "../../../journal/runs.ts";
import { DEFAULT_QUEUE, type TurnOrder } from "../../../journal/turn-order.ts";
import { byteLength } from "../../../lock/checks.ts";
import type { Millis } from "../../../lock/time.ts";
import type { Dynamodb, ItemWrite } from "../client/dynamodb.ts";
import type { ItemKey } from "../client/items.ts";
import type { TableClock } from "./clock.ts";
import type { DocumentKind, Documents, Entry } from "./documents.ts";
import { batchesOf, deleteRange, LONGEST_IN_HEAD, type Stored, store } from "./values.ts";

/** The table of a journal, and the state of its client. */
export interface JournalContext {
  readonly dynamodb: Dynamodb;
  readonly clock: TableClock;
  readonly runs: Documents<Head>;
  readonly turns: TurnOrder;
}

/** The state of a run. Times are milliseconds since 1970; `dueAt` and `expiresAt` without a value: never. */
export interface Head {
  readonly runId: string;

  /** Begins the places of the run's items: a later run with the same id has others. In the order of time. */
  readonly instance: string;
  readonly part: number;
  readonly workflow: string;
  readonly version: number;
  readonly input: Stored;
  readonly inputHash: string;
  readonly parent?: ParentRun | undefined;
  readonly detached?: boolean | undefined;
  readonly queue: string;
  readonly key?: string | undefined;
  readonly priority: number;
  readonly origin?: RunInfo["origin"];

  /** The key of a keyed start. */
  readonly startKey?: string | undefined;
  readonly startedAt: number;
  readonly changedAt: number;
  readonly status: RunStatus;

  /** A bigint. */
  readonly epoch: string;
  readonly owner: string;
  readonly reason?: ParkReason | undefined;
  readonly waitsFor?: string | undefined;
  readonly inProgress?: readonly { key: string; since: number; waitsFor?: string | undefined }[];
  readonly dueAt?: number | undefined;
  readonly expiresAt?: number | undefined;
  readonly crashes: number;
  readonly takenOver: boolean;
  readonly blocks: number;

  /** Whether the run has a record of this epoch. */
  readonly hasWritten: boolean;

  /** The error of a blocked run, and the value of an ended one. */
  readonly value?: Stored | undefined;
  readonly compensated?: Compensation | undefined;
  readonly cancelled: boolean;

  /** Whether the run was cancelled before its last claim. */
  readonly knownCancelled: boolean;

  /** The number of its signals. */
  readonly signals: number;

  /** The number of the last signal that is not the end of a child. */
  readonly lastSent: number;

  /** The numbers of the signals that the history before has received. */
  readonly received: readonly number[];

  /** Of a run that is parked for children. */
  readonly childrenWait?: { readonly at: number; readonly within: Millis } | undefined;

  /** The number and the time of the last record. */
  readonly records: number;
  readonly lastAt: number;

  /** The renaming of records that a reopening has begun. */
  readonly superseded?: { readonly epoch: string; readonly keys: Stored } | undefined;
}

/** The places of runs that are found by a time, so that no partition has all of them. */
export const SHARDS = ["0", "1", "2", "3"] as const;

export const RUNS: DocumentKind<Head> = {
  keyOf: (runId) => ({ pk: partitionOf(runId), sk: "head" }),
  entriesOf,
};

export function partitionOf(runId: string): string {
  return `run/${runId}`;
}

/** Where runs are found: by their time in a list, by the time that they are due, and so on. */
function entriesOf(head: Head): readonly Entry[] {
  const { runId, status, queue, key, startedAt, dueAt, expiresAt, parent, origin } = head;
  const { workflow, version, priority } = head;
  const shard = shardOf(runId);
  const due = { workflow, version, key, priority, parent: parent?.runId };
  const waitsFor = status === "parked" ? head.waitsFor : undefined;
  const entries: readonly (Entry | false | undefined)[] = [
    { pk: `all/${shard}`, sk: timed(startedAt, runId) },
    isOpen(status) && { pk: `open/${shard}`, sk: timed(startedAt, runId) },
    isOpen(status) &&
      dueAt !== undefined && { pk: duePlace(shard, queue), sk: timed(dueAt, runId), about: due },
    status === "running" && { pk: runningPlace(shard, queue), sk: runId, about: { key } },
    expiresAt !== undefined && { pk: `expiry/${shard}`, sk: timed(expiresAt, runId) },
    waitsFor !== undefined && { pk: `waiting/${waitsFor}`, sk: timed(startedAt, runId) },
    parent && { pk: `children/${parent.runId}`, sk: runId },
    origin && { pk: `forks/${origin.runId}`, sk: timed(startedAt, runId) },
  ];
  return entries.filter((entry) => typeof entry === "object");
}

export function duePlace(shard: string, queue: string): string {
  return `due/${shard}/${queue}`;
}

export function runningPlace(shard: string, queue: string): string {
  return `running/${shard}/${queue}`;
}

/** A place that sorts by a time. */
export function timed(time: number, id: string): string {
  return `${String(Math.ceil(time)).padStart(15, "0")}/${id}`;
}

/** The time and the id of a place. */
export function fromTimed(sk: string): { readonly time: number; readonly id: string } {
  return { time: Number(sk.slice(0, 15)), id: sk.slice(16) };
}

/** The bytes of the longest place. */
const LONGEST_PLACE = 1_024;

/** The last place with this start: an id may begin with the last character. */
export function endOf(start: string): string {
  return start + "\u{10ffff}".repeat(Math.max(0, (LONGEST_PLACE - byteLength(start)) / 4));
}

export function shardOf(id: string): string {
  const hash = [...id].reduce((sum, char) => (sum * 31 + (char.codePointAt(0) ?? 0)) % 65_537, 7);
  return SHARDS[hash % SHARDS.length] ?? SHARDS[0];
}

/** The place of an item of the run. */
export function itemOf({ runId, instance }: Head, place: string): ItemKey {
  return { pk: partitionOf(runId), sk: `${instance}/${place}` };
}

export function padded(number: number): string {
  return String(number).padStart(10, "0");
}

/** Writes a text at the place of its number, and the number under the text's key. Refused if the key has one. */
export function writeNumbered(
  place: ItemKey,
  keyed: ItemKey,
  number: number,
  text: object,
): readonly [ItemWrite, ItemWrite] {
  return [
    { key: place, update: "SET #text = :text", values: { text: JSON.stringify(text) } },
    {
      key: keyed,
      update: "SET #number = :number",
      when: "attribute_not_exists(#pk)",
      values: { number },
    },
  ];
}

/** The place of the last run that was started with a key. */
export function startPlace(workflow: string, key: string): ItemKey {
  return { pk: `start/${workflow.length}/${workflow}/${key}`, sk: "start" };
}

/** Deletes the items of a run, and of earlier ones with its id, and leaves its head. */
export async function deleteItems(dynamodb: Dynamodb, { runId, instance }: Head): Promise<void> {
  await deleteRange(dynamodb, { pk: partitionOf(runId), from: "0", to: endOf(instance) });
}

/** Reads the runs that exist, each once. */
export async function readRuns(
  { runs, clock }: JournalContext,
  ids: readonly string[],
): Promise<readonly Head[]> {
  const found: Head[] = [];
  for (const some of batchesOf([...new Set(ids)], 100)) {
    const heads = await runs.read(some);
    found.push(...heads.flatMap((head) => kept(head, clock.now()) ?? []));
  }
  return found;
}

/** The start of the places of a part's values. */
export function valuesOf(head: Head): ItemKey {
  return itemOf(head, `value/${padded(head.part)}`);
}

/** Writes a text of the run, which may be long. */
export function storeIn({ dynamodb }: JournalContext, head: Head, text: string): Promise<Stored> {
  return store(dynamodb, valuesOf(head), text, LONGEST_IN_HEAD);
}

/** Calls the function once: plans are made several times. */
export function once<Args extends unknown[], Result>(
  call: (...args: Args) => Promise<Result>,
): (...args: Args) => Promise<Result> {
  let result: Promise<Result> | undefined;
  return (...args) => {
    result ??= call(...args).catch((error) => {
      result = undefined;
      throw error;
    });
    return result;
  };
}

/** A run that is due. Without its input. */
export function create(
  { runId, workflow, version, inputHash, owner, parent, detached, turn = {} }: NewRun,
  now: number,
  former?: Head,
): Head {
  const { queue = DEFAULT_QUEUE, key, priority = 0 } = turn;
  const epoch = firstEpoch(now, former);
  return {
    ...{ runId, workflow, version, inputHash, owner, parent, detached, queue, key, priority },
    instance: String(epoch).padStart(19, "0"),
    input: "",
    part: 1,
    startedAt: now,
    changedAt: now,
    status: "parked",
    epoch: String(epoch),
    dueAt: now,
    crashes: 0,
    takenOver: false,
    blocks: 0,
    hasWritten: false,
    cancelled: false,
    knownCancelled: false,
    signals: 0,
    lastSent: 0,
    received: [],
    records: 0,
    lastAt: 0,
  };
}

/** No run with the same id had it before. */
function firstEpoch(now: number, former: Head | undefined): bigint {
  const [salt = 0] = crypto.getRandomValues(new Uint32Array(1));
  const next = BigInt(now) * 1_000_000n + BigInt(salt % 1_000_000);
  const last = former ? BigInt(former.epoch) : 0n;
  return next > last ? next : last + 1n;
}

/** The run, unless its result has expired. */
export function kept(head: Head | undefined, now: number): Head | undefined {
  return head?.expiresAt !== undefined && head.expiresAt <= now ? undefined : head;
}

/** The run if this holder has it. */
export function held(head: Head | undefined, run: RunKey, now: number): Head {
  const found = kept(head, now);
  if (found && hasStatus(found, run, "running")) return found;
  throw new StaleRunError(run);
}

export function hasStatus(
  head: Head | undefined,
  { epoch }: RunKey,
  ...statuses: readonly RunStatus[]
): boolean {
  return head?.epoch === String(epoch) && statuses.includes(head.status);
}

export function nextEpoch({ epoch }: Head): string {
  return String(BigInt(epoch) + 1n);
}

/** The time after a span, which may be infinite. */
export function timeIn(now: number, span: Millis): number | undefined {
  return span === Number.POSITIVE_INFINITY ? undefined : Math.ceil(now + span);
}

export function isDue({ dueAt }: Head, now: number): boolean {
  return dueAt !== undefined && dueAt <= now;
}

/** Makes a parked or blocked run due after the span, unless it is due earlier. */
export function woken(head: Head, now: number, span: Millis = 0): Head {
  const { status, dueAt = Number.POSITIVE_INFINITY } = head;
  const isWaiting = status === "parked" || status === "blocked";
  return isWaiting && dueAt > now + span ? { ...head, dueAt: Math.ceil(now + span) } : head;
}

export function cancelled(head: Head, now: number): Head {
  return head.cancelled ? head : { ...woken(head, now), cancelled: true };
}

/** Whether the run was taken over from a process that was lost, and nobody has written a record since. */
export function isTakenOver({ takenOver, hasWritten }: Head): boolean {
  return takenOver && !hasWritten;
}

/** Makes a run due that has ended or is blocked. */
export function opened(head: Head, now: number): Head {
  return {
    ...head,
    status: "parked",
    reason: undefined,
    childrenWait: undefined,
    waitsFor: undefined,
    crashes: 0,
    takenOver: isTakenOver(head),
    blocks: 0,
    value: undefined,
    compensated: undefined,
    expiresAt: undefined,
    epoch: nextEpoch(head),
    dueAt: now,
    changedAt: now,
  };
}

/** All but the error, which may have an item of its own. */
export function toInfo(head: Head): Omit<RunInfo, "error"> {
  const { runId, part, workflow, version, status, epoch, owner, crashes } = head;
  const { queue, key, priority, origin, reason, waitsFor, inProgress = [], dueAt } = head;
  return {
    ...{ runId, part, workflow, version, status, owner, crashes, queue, key, priority, origin },
    epoch: BigInt(epoch),
    cancelled: head.cancelled,
    reason: status === "parked" ? reason : undefined,
    waitsFor: status === "parked" ? waitsFor : undefined,
    inProgress:
      status === "running"
        ? inProgress.map((step) => ({ ...step, since: new Date(step.since) }))
        : [],
    startedAt: new Date(head.startedAt),
    changedAt: new Date(head.changedAt),
    dueAt: isOpen(status) && dueAt !== undefined ? new Date(dueAt) : undefined,
  };
}
