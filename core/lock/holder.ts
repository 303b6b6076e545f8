import { byteLength, checkText } from "./checks.ts";
import { quote } from "./errors.ts";
import type { HolderInfo, LockInfo, WaiterInfo } from "./lock.ts";
import type { Millis } from "./time.ts";

/** The part of a HolderInfo that is written beside the holder's id. The label of the id tells host and pid. */
export type HolderWork = Omit<HolderInfo, "host" | "pid" | "since"> & {
  /** In milliseconds since 1970. */
  readonly since?: Millis | undefined;
};

/** A lock as the store has it: the holder is the text that `describeHolder` made, or a foreign client's. */
export type LockRecord = Omit<LockInfo, "about">;

/** Returns a unique id, so that no client releases the claim of another one; the label is for humans. */
export function newHolderId(label: string): string {
  return `${label}/${crypto.randomUUID()}`;
}

/** The most bytes of a holder, as the columns of databases have. */
const LONGEST_HOLDER = 255;

/** The fields that are shortened when the text is too long, in this order. */
const SHORTENED = ["command", "step", "run"] as const;

/** The most bytes of a leader's value: with `since` and `revision`, it fits beside an id of 107 bytes. */
const LONGEST_VALUE = 80;

/** Throws unless the value of a leader is text of at most 80 bytes, also as JSON. The value may be empty. */
export function checkValue(value: unknown): asserts value is string {
  if (value === "") return;
  checkText("value", value, LONGEST_VALUE);
  checkText("value as JSON,", JSON.stringify(value).slice(1, -1), LONGEST_VALUE);
}

/**
 * Returns the text of a holder: its id and, as JSON, its work. Without `since`, the holder asks for its lock now. Throws a
 * RangeError when a leader's value does not fit beside the id.
 */
export function describeHolder(id: string, work: HolderWork = {}): string {
  const about = { since: Date.now(), ...work };
  const { text, excess } = fitText(about, SHORTENED, (fields) => join(id, fields));
  if (excess > 0 && work.value !== undefined) {
    throw new RangeError(`value ${quote(work.value)} has ${excess} bytes too many beside ${id}`);
  }
  return excess > 0 ? id : text;
}

/** Shortens fields, in their order, until their text fits in the place of a holder. `excess`: the bytes that are still too many. */
export function fitText<F extends string, T extends { readonly [K in F]?: string | undefined }>(
  whole: T,
  shortened: readonly F[],
  write: (fields: T) => string,
): { readonly text: string; readonly excess: number } {
  let fields = whole;
  let text = write(fields);
  let excess = byteLength(text) - LONGEST_HOLDER;
  for (const field of shortened) {
    if (excess <= 0) break;
    const start = fields[field]?.slice(0, -(excess + byteLength("…"))).toWellFormed();
    fields = { ...fields, [field]: start ? `${start}…` : undefined };
    text = write(fields);
    excess = byteLength(text) - LONGEST_HOLDER;
  }
  return { text, excess };
}

function join(id: string, about: object): string {
  return `${id} ${JSON.stringify(about)}`;
}

const HOLDER = /^(.*?\/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}) (\{.*\})$/s;

/** Returns the id in the text of a holder. A foreign holder's text is its id. */
export function holderIdOf(holder: string): string {
  return HOLDER.exec(holder)?.[1] ?? holder;
}

/** Splits the text of the lock's holder into its id and its description. */
export function describeLock(record: LockRecord): LockInfo {
  const { holder } = record;
  if (holder === undefined) return { ...record, about: undefined };
  const { id, ...about } = describeWaiter(holder);
  return { ...record, holder: id, about };
}

/** The most waiters of one lock that `inspect` shows. */
export const MOST_WAITERS = 100;

/** Splits the text of a waiter or holder into its id and its description. */
export function describeWaiter(text: string): WaiterInfo {
  const [, id = text, json = "{}"] = HOLDER.exec(text) ?? [];
  return { id, ...processOf(id), ...parseWork(json) };
}

/** Labels of processes are "HOST:PID". */
function processOf(id: string): Pick<HolderInfo, "host" | "pid"> {
  const [, host, pid] = /^([^/]+):(\d{1,10})(?:\/|$)/.exec(id) ?? [];
  return host === undefined ? {} : { host, pid: Number(pid) };
}

function parseWork(json: string): HolderInfo {
  try {
    const { since, command, run, step, value, revision } = JSON.parse(json);
    const at = new Date(since);
    return {
      ...(!Number.isNaN(at.getTime()) && { since: at }),
      ...textOf("command", command),
      ...textOf("run", run),
      ...textOf("step", step),
      ...textOf("value", value),
      ...(Number.isSafeInteger(revision) && { revision }),
    };
  } catch {
    // The text of a foreign client.
    return {};
  }
}

function textOf(
  field: "command" | "run" | "step" | "value",
  value: unknown,
): Omit<HolderInfo, "since"> {
  return typeof value === "string" ? { [field]: value } : {};
}
