import { deadline, noAnswer, race } from "./abort.ts";
import { fitText } from "./holder.ts";
import {
  INCIDENT_LIFE,
  type IncidentRecord,
  type IncidentSlots,
  type Incidents,
  type NewIncident,
} from "./incidents.ts";
import { type Backoff, backoff, retry } from "./retry.ts";
import type { Millis } from "./time.ts";

/** The most incidents of a client that wait to be written. */
const MOST_PENDING = 5;

/** The longest attempt to write an incident. */
const LONGEST_ATTEMPT: Millis = 2_000;

/** The pauses between attempts: a store that was unavailable when a lock was lost may be back half a minute later. */
const PAUSES: Backoff = { base: 1_000, factor: 2, max: 16_000 };
const MOST_ATTEMPTS = 6;

interface IncidentRecordsOptions {
  /** The label of this client. */
  readonly process: string;

  /** Aborts when the client is closed: then nothing is tried again. */
  readonly closing: AbortSignal;
}

/** Incidents as texts in the slots of a store. */
export class IncidentRecords implements Incidents {
  readonly #slots: IncidentSlots;
  readonly #options: IncidentRecordsOptions;
  readonly #pending: string[] = [];

  constructor(slots: IncidentSlots, options: IncidentRecordsOptions) {
    this.#slots = slots;
    this.#options = options;
  }

  async leave(incident: NewIncident): Promise<void> {
    if (this.#pending.length >= MOST_PENDING) return;
    const { process, closing } = this.#options;
    this.#pending.push(encode({ ...incident, process, at: Date.now() }));
    if (this.#pending.length > 1) return;
    for (let text = this.#pending[0]; text !== undefined; text = this.#pending[0]) {
      const attempt = () => this.#write(text as string);
      const pauseAfter = (_: unknown, count: number) =>
        count < MOST_ATTEMPTS - 1 ? backoff(count, PAUSES) : undefined;
      await retry(attempt, pauseAfter, closing).catch(() => {});
      this.#pending.shift();
    }
  }

  async read(): Promise<readonly IncidentRecord[]> {
    const texts = await this.#slots.read();
    return texts.flatMap((text) => decode(text) ?? []).sort((a, b) => +b.at - +a.at);
  }

  /** Writes into an empty slot, or else in place of the oldest incident. */
  async #write(text: string): Promise<void> {
    using limit = deadline(LONGEST_ATTEMPT, noAnswer);
    const write = async () => {
      const times = (await this.#slots.read()).map((found) => decode(found)?.at.getTime() ?? 0);
      const oldest = Math.min(...times);
      const slots = [...times.keys()].filter((slot) => times[slot] === oldest);
      // Another process may write at the same time.
      const slot = slots[Math.floor(Math.random() * slots.length)] as number;
      if (!(await this.#slots.write(slot, text, limit.signal)))
        throw new Error("the slot is taken");
    };
    await race(write(), limit.signal);
  }
}

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
