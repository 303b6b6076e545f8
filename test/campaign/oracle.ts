import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";

/** Nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share; as text, for JSON. */
export type At = string;

/** One acquisition of a lock. The fence is in the form of `Fence.toString()`, which sorts as fences do. */
export interface Holder {
  readonly name: string;
  readonly fence: string;

  /** Never the same twice. */
  readonly owner: string;
}

/** What a contender tells the oracle. Times are taken by the contender: it may be frozen before it can tell. */
export type Event = Holder &
  (
    | { readonly type: "claim"; readonly requestedAt: At; readonly acquiredAt: At }
    | { readonly type: "write"; readonly value: number }
    /** `assertHeld()` passed, and was called at `at` or later. */
    | { readonly type: "belief"; readonly at: At }
    | { readonly type: "release"; readonly startedAt: At; readonly answer: string }
  );

/** The answer to a claim or write: undefined `value` means that the fence was refused. */
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
  lastBelief: bigint;

  /** When it asked for the release that was answered "released". */
  releasedAt?: bigint;
}

/**
 * The resource that the locks of a campaign guard: a register for each name, which checks fences as the documentation
 * demands. It records what every holder says, and judges the whole history at the end.
 */
export class Oracle {
  readonly #server: Server;
  readonly #registers = new Map<string, Register>();
  readonly #holds = new Map<string, Hold>();
  readonly #violations: string[] = [];
  #applied = 0;
  #refusedClaims = 0;
  #refusedWrites = 0;

  private constructor() {
    this.#server = createServer(async (request, response) => {
      const event = (await json(request)) as Event;
      response.end(JSON.stringify(this.#handle(event)));
    });
  }

  static async open(): Promise<Oracle> {
    const oracle = new Oracle();
    await once(oracle.#server.listen(0, "127.0.0.1"), "listening");
    return oracle;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get counts() {
    return {
      acquisitions: this.#holds.size,
      writesApplied: this.#applied,
      lateClaimsRefused: this.#refusedClaims,
      lateWritesRefused: this.#refusedWrites,
    };
  }

  /** Everything that contradicts a promise; empty when nothing does. */
  judge(): readonly string[] {
    const byName = Map.groupBy(this.#holds.values(), ({ name }) => name);
    return [...this.#violations, ...[...byName.values()].flatMap(judgeName)];
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #handle(event: Event): Answer {
    if (event.type === "claim") return this.#claim(event);
    if (event.type === "write") return this.#write(event);
    const hold = this.#holds.get(event.owner);
    if (!hold) throw new Error(`${event.owner} has claimed nothing`);
    if (event.type === "belief") hold.lastBelief = BigInt(event.at);
    else if (event.answer === "released") hold.releasedAt = BigInt(event.startedAt);
    return {};
  }

  #claim({ name, fence, owner, requestedAt, acquiredAt }: Event & { type: "claim" }): Answer {
    const times = { requestedAt: BigInt(requestedAt), acquiredAt: BigInt(acquiredAt) };
    this.#holds.set(owner, { name, fence, owner, ...times, lastBelief: 0n });
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

/** The promises that concern two holders of one name. */
function judgeName(holds: readonly Hold[]): readonly string[] {
  const inOrder = holds.toSorted((a, b) => (a.fence < b.fence ? -1 : 1));
  return [...beliefsThatOverlap(inOrder), ...fencesOutOfOrder(inOrder)];
}

/** No holder believes that it holds after a later holder has acquired. */
function beliefsThatOverlap(inOrder: readonly Hold[]): readonly string[] {
  const violations: string[] = [];
  let latest: Hold | undefined;
  for (const hold of inOrder) {
    if (latest && latest.lastBelief > hold.acquiredAt) {
      const millis = Number(latest.lastBelief - hold.acquiredAt) / 1e6;
      violations.push(
        `${latest.owner} believed to hold ${hold.name} ${millis} ms after ${hold.owner} acquired it`,
      );
    }
    if (!latest || hold.lastBelief > latest.lastBelief) latest = hold;
  }
  return violations;
}

/**
 * A lock that was acquired before another one was asked for has the lower fence, and "released" is told only to the
 * holder at that time.
 */
function fencesOutOfOrder(inOrder: readonly Hold[]): readonly string[] {
  const violations: string[] = [];

  /** Of all with a higher fence, the one that was acquired first. */
  let first: Hold | undefined;
  for (const hold of inOrder.toReversed()) {
    if (first && first.acquiredAt < hold.requestedAt) {
      violations.push(
        `${hold.owner} asked for ${hold.name} after ${first.owner} had acquired it, and has a lower fence`,
      );
    }
    if (first && hold.releasedAt !== undefined && first.acquiredAt < hold.releasedAt) {
      violations.push(
        `${hold.owner} was told "released" for ${hold.name}, which ${first.owner} had acquired before`,
      );
    }
    if (!first || hold.acquiredAt < first.acquiredAt) first = hold;
  }
  return violations;
}

/** Tells the oracle, which is always there. */
export async function tell(oracle: string, event: Event): Promise<Answer> {
  const answer = await fetch(oracle, { method: "POST", body: JSON.stringify(event) });
  return (await answer.json()) as Answer;
}

export function now(): At {
  return String(process.hrtime.bigint());
}
