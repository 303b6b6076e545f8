import { worstOf } from "../../../journal/child-result.ts";
import {
  type CancelledChildren,
  isDebounced,
  isOpen,
  type NewSignal,
  type RunSignal,
} from "../../../journal/runs.ts";
import { quote } from "../../../lock/errors.ts";
import type { ItemWrite } from "../client/dynamodb.ts";
import {
  cancelled,
  endOf,
  type Head,
  itemOf,
  type JournalContext,
  kept,
  once,
  padded,
  partitionOf,
  readRuns,
  woken,
  writeNumbered,
} from "./runs.ts";
import {
  batchesOf,
  deleteAll,
  deleteRange,
  LONGEST_IN_ITEM,
  readRange,
  readStored,
  type Stored,
  store,
} from "./values.ts";

interface SignalText {
  readonly name: string;
  readonly dedupeId: string;
  readonly payload: Stored;
  readonly at: number;
}

/** Sends a signal. A place for its name and dedupe id is written once. */
export function sendSignal(
  context: JournalContext,
  runId: string,
  signal: NewSignal,
): Promise<"delivered" | "duplicate" | "ended" | "missing"> {
  const payload = payloadOf(context, signal);
  let isKnown = false;
  return context.runs.change<"delivered" | "duplicate" | "ended" | "missing">({
    ids: [runId],
    what: `signal ${quote(signal.name)} was sent to run ${quote(runId)}`,
    async plan([found], now) {
      const head = kept(found, now);
      if (!head) return { result: "missing" };
      if (!isOpen(head.status)) return { result: "ended" };
      if (isKnown) return { result: "duplicate" };
      const received = withSignal(head, signal, await payload(head), now);
      const sent = { ...received.head, lastSent: received.head.signals };
      return {
        docs: [isDebounced(head) ? sent : woken(sent, now)],
        writes: received.writes,
        result: "delivered",
        refused() {
          isKnown = true;
        },
      };
    },
  });
}

/** Returns a function that writes the signal's payload once, if it is long. */
export function payloadOf({ dynamodb }: JournalContext, { payload }: Pick<NewSignal, "payload">) {
  return once((head: Head) => store(dynamodb, itemOf(head, "payload"), payload, LONGEST_IN_ITEM));
}

/** Adds a signal to the run. The writes are refused if the run has it. */
export function withSignal(
  before: Head,
  { name, dedupeId }: Omit<NewSignal, "payload">,
  payload: Stored,
  now: number,
): { readonly head: Head; readonly writes: readonly ItemWrite[] } {
  const head = { ...before, signals: before.signals + 1 };
  const text: SignalText = { name, dedupeId, payload, at: now };
  return { head, writes: writeSignal(head, head.signals, text) };
}

export function writeSignal(
  head: Head,
  number: number,
  text: SignalText,
): readonly [ItemWrite, ItemWrite] {
  return writeNumbered(signalPlace(head, number), sentPlace(head, text), number, text);
}

function signalPlace(head: Head, number: number) {
  return itemOf(head, `signal/${padded(number)}`);
}

function sentPlace(head: Head, { name, dedupeId }: Pick<SignalText, "name" | "dedupeId">) {
  return itemOf(head, `sent/${name.length}/${name}/${dedupeId}`);
}

/** Reads the signals that no earlier history has received. */
export async function readSignals(
  context: JournalContext,
  head: Head,
): Promise<readonly RunSignal[]> {
  const texts = await readSignalTexts(context, head);
  return Promise.all(
    texts.map(async ({ number, text: { payload, at, ...text } }) => ({
      ...text,
      number,
      payload: await readStored(context.dynamodb, partitionOf(head.runId), payload),
      at: new Date(at),
    })),
  );
}

export async function readSignalTexts({ dynamodb }: JournalContext, head: Head) {
  const { pk, sk: from } = itemOf(head, "signal/");
  const received = new Set(head.received);
  return (await readRange(dynamodb, { pk, from, to: endOf(from) }))
    .map(({ sk = "", text = "" }) => ({
      number: Number(sk.slice(-10)),
      text: JSON.parse(text) as SignalText,
    }))
    .filter(({ number }) => !received.has(number));
}

/** Deletes the signals that the history before has received. */
export async function forgetSignals(context: JournalContext, head: Head): Promise<void> {
  if (head.received.length === 0) return;
  const all = await readSignalTexts(context, { ...head, received: [] });
  const received = new Set(head.received);
  const forgotten = all.filter(({ number }) => received.has(number));
  for (const { text } of forgotten) {
    if (typeof text.payload === "string") continue;
    const { at } = text.payload;
    await deleteRange(context.dynamodb, { pk: partitionOf(head.runId), from: at, to: endOf(at) });
  }
  await deleteAll(
    context.dynamodb,
    forgotten.flatMap(({ number, text }) => [signalPlace(head, number), sentPlace(head, text)]),
  );
}

export function requestCancel(
  { runs }: JournalContext,
  runId: string,
): Promise<"requested" | "ended" | "missing"> {
  return runs.change<"requested" | "ended" | "missing">({
    ids: [runId],
    what: `the cancellation of run ${quote(runId)} was requested`,
    plan([found], now) {
      const head = kept(found, now);
      if (!head) return { result: "missing" };
      if (!isOpen(head.status)) return { result: "ended" };
      return { docs: [cancelled(head, now)], result: "requested" };
    },
  });
}

/** Cancellations that are sent at a time. */
const AT_ONCE = 16;

export async function cancelChildren(
  context: JournalContext,
  runId: string,
): Promise<CancelledChildren> {
  const places = { pk: `children/${runId}`, from: "\0", to: endOf("") };
  const ids = (await readRange(context.dynamodb, places)).map(({ sk = "" }) => sk);
  const children = await readRuns(context, ids);
  const own = children.filter(({ detached }) => !detached);
  const ended = own.filter(({ status }) => !isOpen(status));
  const open: string[] = [];
  const going = own.filter(({ status }) => isOpen(status));
  for (const some of batchesOf(going, AT_ONCE)) {
    const answers = await Promise.all(some.map(({ runId: id }) => requestCancel(context, id)));
    open.push(...some.filter((_, i) => answers[i] === "requested").map((child) => child.runId));
    const others = some.filter((_, i) => answers[i] === "ended").map((child) => child.runId);
    ended.push(...(await readRuns(context, others)));
  }
  return { open, compensated: worstOf(ended.flatMap(({ compensated }) => compensated ?? [])) };
}
