import { deadline, noAnswer, race } from "../../core/lock/abort.ts";
import { hasCode } from "../../core/lock/errors.ts";
import { fitText } from "../../core/lock/holder.ts";
import { INCIDENT_LIFE, type Incidents } from "../../core/lock/incidents.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { type Backoff, backoff, retry } from "../../core/lock/retry.ts";
import type { Millis } from "../../core/lock/time.ts";
import { redact } from "../../infra/redact.ts";

/** A lost lock, or a write that a resource has refused, as a process has left it in its store: for humans, and shortened. */
export interface IncidentRecord {
  /** By the clock of the process. */
  readonly at: Date;

  /** The label of the process's client. */
  readonly process: string;
  readonly kind: "lost" | "refused";

  /** How the lock was lost, or the message of the error. */
  readonly why: string;
  readonly lock?: string | undefined;
  readonly fence?: string | undefined;
  readonly operationId?: string | undefined;
  readonly run?: string | undefined;
}

export type NewIncident = Omit<IncidentRecord, "at" | "process">;

/** Reads the incidents that processes have left in the store, the newest first. */
export async function readIncidents({ incidents }: LockStore): Promise<readonly IncidentRecord[]> {
  const texts = (await incidents?.read()) ?? [];
  return texts.flatMap((text) => decode(text) ?? []).sort((a, b) => +b.at - +a.at);
}

/** The most incidents of a process that wait to be written. */
const MOST_PENDING = 5;

/** The longest attempt to write an incident. */
const LONGEST_ATTEMPT: Millis = 2_000;

/** The pauses between attempts: a store that was unavailable when a lock was lost may be back half a minute later. */
const PAUSES: Backoff = { base: 1_000, factor: 2, max: 16_000 };
const MOST_ATTEMPTS = 6;

/** Writes the incidents of this process into a store of locks, one after another. */
export class IncidentWriter {
  readonly #locks: () => LockStore | undefined;
  readonly #pending: string[] = [];

  /** `locks` is called for each incident; undefined: the store is not open yet. */
  constructor(locks: () => LockStore | undefined) {
    this.#locks = locks;
  }

  /** Never rejects: what the store does not take is lost, and so are all but the first few of many incidents at once. */
  async leave(incident: NewIncident): Promise<void> {
    const incidents = this.#locks()?.incidents;
    if (!incidents || this.#pending.length >= MOST_PENDING) return;
    const { process } = incidents;
    const why = withShortFences(redact(incident.why));
    this.#pending.push(encode({ ...incident, why, process, at: Date.now() }));
    if (this.#pending.length > 1) return;
    for (let text = this.#pending[0]; text !== undefined; text = this.#pending[0]) {
      await writeUntilKnown(incidents, text).catch(() => {});
      this.#pending.shift();
    }
  }
}

function writeUntilKnown(incidents: Incidents, text: string): Promise<void> {
  const attempt = async () => {
    using limit = deadline(LONGEST_ATTEMPT, noAnswer);
    const writing = incidents.replace(slotOfOldest, text, limit.signal);
    if (!(await race(writing, limit.signal))) throw new Error("another process took the slot");
  };
  return retry(attempt, (error, count) => {
    const isFinal = hasCode(error, "STORE_CLOSED") || count >= MOST_ATTEMPTS - 1;
    return isFinal ? undefined : backoff(count, PAUSES);
  });
}

/** Returns an empty slot at random, or else that of the oldest incident: other processes may choose at the same time. */
function slotOfOldest(texts: readonly (string | undefined)[]): number {
  const times = texts.map((text) => decode(text)?.at.getTime() ?? 0);
  const oldest = Math.min(...times);
  const slots = [...times.keys()].filter((slot) => times[slot] === oldest);
  return slots[Math.floor(Math.random() * slots.length)] as number;
}

/** Makes "0.17" of "0000000000.00000000000000000017" in a message, so that more of it fits. */
function withShortFences(message: string): string {
  return message.replace(/\b0*(\d+)\.0*(\d+)\b/g, (found, generation, token) =>
    found.length === FENCE_LENGTH ? `${generation}.${token}` : found,
  );
}

/** Ten digits, a dot and twenty digits. */
const FENCE_LENGTH = 31;

/** The fields that are shortened when the text is too long, in this order. */
const SHORTENED = ["why", "operationId", "run", "fence", "lock", "process"] as const;

type Encoded = Omit<IncidentRecord, "at"> & { readonly at: number };

function encode(incident: Encoded): string {
  return fitText(incident, SHORTENED, (fields) => JSON.stringify(fields)).text;
}

/** Returns undefined for what is no incident of the last minutes. */
function decode(text: string | undefined): IncidentRecord | undefined {
  try {
    const { at, ...incident } = JSON.parse(text ?? "") as Encoded;
    const isRecent = Date.now() - at < INCIDENT_LIFE;
    return isRecent ? { ...incident, at: new Date(at) } : undefined;
  } catch {
    return undefined;
  }
}
