import { hasCode } from "../../core/lock/errors.ts";

/** An event in the handling of an order. */
export interface TraceEvent {
  readonly type: /** The worker asks for the lock. */
    | "asks"
    /** The worker has the lock. */
    | "holds"
    /** The worker calls the identity service. */
    | "calls"
    /** The identity service has answered. */
    | "identified"
    /** The stock has accepted the worker's fence. */
    | "claimed"
    /** The worker has read the stock. */
    | "reads"
    /** The worker has subtracted a unit, and not recorded a sale. */
    | "takes"
    /** The process is about to be frozen. */
    | "freezes"
    /** The process continues after a freeze. */
    | "wakes"
    /** The stock has recorded a sale. */
    | "sold"
    /** The stock had recorded this sale before. */
    | "replayed"
    | "sold-out"
    /** The stock has refused a late fence, or a late version. */
    | "refused"
    /** The worker releases the lock. */
    | "releases"
    /** The process is about to be killed. */
    | "dies";

  /** When the worker knows of it, in milliseconds since the start of the sale. */
  readonly at: number;

  /** When the worker sent the request that is answered. */
  readonly sentAt?: number;

  /** The fencing token of the lock. */
  readonly token?: string;

  /** The stock that was read, or that a sale has left if the worker knows it. */
  readonly stock?: number;
}

/** The machine's monotonic clock, the same in all its processes, in milliseconds. */
export function monotonicNow(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** Records the events of an order. */
export class Trace {
  readonly events: TraceEvent[] = [];
  readonly #startedAt: number;

  /** `startedAt`: the start of the sale, as monotonicNow() tells it. */
  constructor(startedAt: number) {
    this.#startedAt = startedAt;
  }

  /** Milliseconds since the start of the sale. */
  now(): number {
    return monotonicNow() - this.#startedAt;
  }

  add(type: TraceEvent["type"], details: Omit<TraceEvent, "type" | "at"> = {}): void {
    this.events.push({ type, at: this.now(), ...details });
  }

  /** Sends a request to the stock and records its answer. The refusal of a late fence is an answer too. */
  async request<T>(
    send: () => Promise<T>,
    toEvent: (answer: T) => Pick<TraceEvent, "type" | "stock">,
  ): Promise<T> {
    const sentAt = this.now();
    try {
      const answer = await send();
      const { type, ...details } = toEvent(answer);
      this.add(type, { sentAt, ...details });
      return answer;
    } catch (error) {
      if (hasCode(error, "FENCED_OUT")) this.add("refused", { sentAt });
      throw error;
    }
  }
}

/** A span of time. */
export interface Interval {
  readonly from: number;
  readonly to: number;
}

/** Returns the time in which a worker considered itself the holder of the lock. */
export function beliefOf(events: readonly TraceEvent[]): Interval | undefined {
  const from = events.find(({ type }) => type === "holds")?.at;
  const to = events.find(({ type }) => type === "releases" || type === "dies")?.at;
  return from === undefined || to === undefined ? undefined : { from, to };
}

/** Returns the intervals that began before an earlier one had ended. */
export function overlapping<T extends Interval>(intervals: readonly T[]): readonly T[] {
  let end = Number.NEGATIVE_INFINITY;
  return intervals
    .toSorted((a, b) => a.from - b.from)
    .filter(({ from, to }) => {
      const overlaps = from < end;
      end = Math.max(end, to);
      return overlaps;
    });
}
