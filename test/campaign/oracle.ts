import { ask, type JsonServer, serveJson } from "../support/json-server.ts";

/** A time of CLOCK_MONOTONIC, which all processes of a machine share, in nanoseconds; a string for JSON. */
export type Timestamp = string;

/** One acquisition of a lock. The fence has the form of `Fence.toString()`, which sorts like fences. */
export interface Holder {
  readonly name: string;
  readonly fence: string;

  /** Unique per acquisition. */
  readonly owner: string;
}

/** A report of a contender. The contender takes the times: it may be frozen before it sends the report. */
export type Event = Holder &
  (
    | { readonly type: "claim"; readonly requestedAt: Timestamp; readonly acquiredAt: Timestamp }
    | { readonly type: "write"; readonly value: number }
    /** `assertHeld()` passed, called at `at` or later. */
    | { readonly type: "held"; readonly at: Timestamp }
    | { readonly type: "release"; readonly startedAt: Timestamp; readonly answer: string }
  );

/** The answer to a claim or a write. `value` is undefined if the fence was refused. */
export interface Answer {
  readonly value?: number;
}

interface Register {
  value: number;
  fence: string;
  owner: string;
}

interface Hold extends Holder {
  readonly requestedAt: bigint;
  readonly acquiredAt: bigint;
  lastHeldAt: bigint;

  /** The start of the release that was answered "released". */
  releasedAt?: bigint;
}

/**
 * The resource behind the locks of a campaign: a register for each name, which checks fences as documented. It records
 * the reports of all holders and judges the whole history at the end.
 */
export class Oracle {
  #server: JsonServer | undefined;
  readonly #registers = new Map<string, Register>();
  readonly #holds = new Map<string, Hold>();
  readonly #violations: string[] = [];
  #applied = 0;
  #refusedClaims = 0;
  #refusedWrites = 0;

  static async open(): Promise<Oracle> {
    const oracle = new Oracle();
    oracle.#server = await serveJson((event: Event) => oracle.#handle(event));
    return oracle;
  }

  get url(): string {
    return this.#server?.url ?? "";
  }

  get counts() {
    return {
      acquisitions: this.#holds.size,
      writesApplied: this.#applied,
      lateClaimsRefused: this.#refusedClaims,
      lateWritesRefused: this.#refusedWrites,
    };
  }

  /** Returns all broken guarantees. */
  judge(): readonly string[] {
    const byName = Map.groupBy(this.#holds.values(), ({ name }) => name);
    return [...this.#violations, ...[...byName.values()].flatMap(judgeName)];
  }

  async close(): Promise<void> {
    this.#server?.close();
  }

  #handle(event: Event): Answer {
    if (event.type === "claim") return this.#claim(event);
    if (event.type === "write") return this.#write(event);
    const hold = this.#holds.get(event.owner);
    if (!hold) throw new Error(`${event.owner} has claimed no fence`);
    if (event.type === "held") hold.lastHeldAt = BigInt(event.at);
    else if (event.answer === "released") hold.releasedAt = BigInt(event.startedAt);
    return {};
  }

  #claim({ name, fence, owner, requestedAt, acquiredAt }: Event & { type: "claim" }): Answer {
    const times = { requestedAt: BigInt(requestedAt), acquiredAt: BigInt(acquiredAt) };
    this.#holds.set(owner, { name, fence, owner, ...times, lastHeldAt: 0n });
    const register = this.#registers.get(name) ?? { value: 0, fence: "", owner: "" };
    if (fence === register.fence) {
      this.#violations.push(`${owner} and ${register.owner} have one fence: ${name} ${fence}`);
    }
    if (fence <= register.fence) {
      this.#refusedClaims += 1;
      return {};
    }
    this.#registers.set(name, { value: register.value, fence, owner });
    return { value: register.value };
  }

  #write({ name, fence, owner, value }: Event & { type: "write" }): Answer {
    const register = this.#registers.get(name);
    if (register?.fence !== fence || register.owner !== owner) {
      this.#refusedWrites += 1;
      return {};
    }
    if (value !== register.value + 1) {
      this.#violations.push(`${owner} wrote ${value} over ${register.value}: an update is lost`);
    }
    register.value = value;
    this.#applied += 1;
    return { value };
  }
}

/** Checks the guarantees between holders of one name. */
function judgeName(holds: readonly Hold[]): readonly string[] {
  const inOrder = holds.toSorted((a, b) => (a.fence < b.fence ? -1 : 1));
  return [...findOverlaps(inOrder), ...findOrderViolations(inOrder)];
}

/** Finds holders that considered themselves holders after a later acquisition. */
function findOverlaps(inOrder: readonly Hold[]): readonly string[] {
  const violations: string[] = [];
  let latest: Hold | undefined;
  for (const hold of inOrder) {
    if (latest && latest.lastHeldAt > hold.acquiredAt) {
      const millis = Number(latest.lastHeldAt - hold.acquiredAt) / 1e6;
      violations.push(
        `${latest.owner} considered itself the holder of ${hold.name} ${millis} ms after ${hold.owner} acquired it`,
      );
    }
    if (!latest || hold.lastHeldAt > latest.lastHeldAt) latest = hold;
  }
  return violations;
}

/**
 * Finds acquisitions with a lower fence than an acquisition that ended before their request, and releases answered
 * "released" after a later acquisition.
 */
function findOrderViolations(inOrder: readonly Hold[]): readonly string[] {
  const violations: string[] = [];

  /** The earliest acquisition among those with a higher fence. */
  let first: Hold | undefined;
  for (const hold of inOrder.toReversed()) {
    if (first && first.acquiredAt < hold.requestedAt) {
      violations.push(
        `${hold.owner} requested ${hold.name} after ${first.owner} had acquired it, and has a lower fence`,
      );
    }
    if (first && hold.releasedAt !== undefined && first.acquiredAt < hold.releasedAt) {
      violations.push(
        `${hold.owner} was answered "released" for ${hold.name}, which ${first.owner} had acquired before`,
      );
    }
    if (!first || hold.acquiredAt < first.acquiredAt) first = hold;
  }
  return violations;
}

/** Sends a report to the oracle, which never fails. */
export function sendReport(oracle: string, event: Event): Promise<Answer> {
  return ask(oracle, event);
}

export function now(): Timestamp {
  return String(process.hrtime.bigint());
}
