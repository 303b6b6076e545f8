import type { LedgerEntry } from "../../core/inventory/inventory.ts";
import type { HistoryEvent } from "./history.ts";

/** The guarantees that a campaign checks. */
export type CampaignCheck =
  | "token order"
  | "validity"
  | "validity at the store"
  | "release by the owner"
  | "late write"
  | "lost update"
  | "stock"
  | "once per operation id"
  | "known errors"
  | "once per transaction"
  | "free at the end"
  | "expected ends"
  | "model path";

export type CampaignViolation = `${CampaignCheck}: ${string}`;

/** One acquisition, with times in microseconds. */
interface Hold {
  readonly client: string;
  readonly name: string;
  readonly token: string;
  readonly requestedAt: number;
  readonly acquiredAt: number;

  /** When the lock was last found to be held; the last use of a resource; the start of a release that was answered "released". */
  heldAt?: number;
  usedAt?: number;
  releasedAt?: number;
}

/** The verdict on what locks and fences have done. */
export interface Judgement {
  readonly violations: readonly CampaignViolation[];

  /** Acquisitions whose holder still used a resource after a later acquisition. */
  readonly overlaps: number;

  /** Uses of a resource by late holders: refused, and accepted after a use under a later fence was confirmed. */
  readonly lateRefused: number;
  readonly lateAccepted: number;
}

/** Judges a history in O(n log n). */
export function judge(events: readonly HistoryEvent[]): Judgement {
  const holds = [...Map.groupBy(holdsOf(events), ({ name }) => name).values()].map((ofName) =>
    ofName.toSorted((a, b) => (a.token < b.token ? -1 : 1)),
  );
  const steps = clockSteps(events);
  const seen = Map.groupBy(
    events.filter(({ operation, type }) => operation === "inspect" && type === "ok"),
    ({ name }) => name,
  );
  const late = lateWrites(events);
  const violations = holds.flatMap((ofName) => [
    ...tokenOrder(ofName),
    ...validity(ofName, steps),
    ...validityAtStore(ofName, seen.get(ofName[0]?.name) ?? [], steps),
    ...releases(ofName),
  ]);
  return {
    violations: [...violations, ...late],
    overlaps: holds.reduce((sum, ofName) => sum + overlapsOf(ofName), 0),
    lateRefused: events.filter(({ type, code }) => type === "fail" && code === "FENCED_OUT").length,
    lateAccepted: late.length,
  };
}

/** The fault that makes a store end locks early: only fences protect then. */
export const CLOCK_STEP = "server's clock stepped";

interface Span {
  readonly from: number;
  to: number;
}

function clockSteps(events: readonly HistoryEvent[]): readonly Span[] {
  const spans: Span[] = [];
  for (const { client, operation, type, time } of events) {
    if (client !== "nemesis" || operation !== CLOCK_STEP) continue;
    const last = spans.at(-1);
    if (type === "invoke") spans.push({ from: time, to: Number.POSITIVE_INFINITY });
    else if (last) last.to = time;
  }
  return spans;
}

const USES = ["claim", "write", "sale"];

function holdsOf(events: readonly HistoryEvent[]): readonly Hold[] {
  const holds: Hold[] = [];
  const requested = new Map<string, number>();
  const current = new Map<string, Hold>();
  const releasing = new Map<string, number>();
  for (const { time, client, type, operation, name = "", token = "" } of events) {
    if (operation === "acquire" && type === "invoke") requested.set(client, time);
    if (operation === "acquire" && type === "ok") {
      const requestedAt = requested.get(client) ?? time;
      const made: Hold = { client, name, token, requestedAt, acquiredAt: time };
      current.set(client, made);
      holds.push(made);
    }
    const hold = current.get(client);
    if (!hold || hold.token !== token) continue;
    if (operation === "hold" && type === "ok") hold.heldAt = time;
    if (USES.includes(operation) && type === "invoke") hold.usedAt = time;
    if (operation === "release" && type === "invoke") releasing.set(client, time);
    if (operation === "release" && type === "ok") hold.releasedAt = releasing.get(client) ?? time;
  }
  return holds;
}

/** No two holders have one token, and tokens follow the order of acquisitions that do not overlap. */
function tokenOrder(inOrder: readonly Hold[]): readonly CampaignViolation[] {
  const violations: CampaignViolation[] = [];
  forEachWithLater(inOrder, (hold, first, next) => {
    if (next?.token === hold.token) {
      violations.push(
        `token order: ${hold.client} and ${next.client} have one token: ${hold.name} ${hold.token}`,
      );
    }
    if (first && first.acquiredAt < hold.requestedAt) {
      violations.push(
        `token order: ${hold.client} requested ${hold.name} after ${first.client} had acquired it, and has a lower token`,
      );
    }
  });
  return violations;
}

/** No holder finds its lock held after a later acquisition, unless the store's clock was stepped meanwhile. */
function validity(inOrder: readonly Hold[], steps: readonly Span[]): readonly CampaignViolation[] {
  const violations: CampaignViolation[] = [];
  forEachWithLater(inOrder, (hold, first) => {
    if (!first || hold.heldAt === undefined || hold.heldAt <= first.acquiredAt) return;
    if (isExcused(hold, steps)) return;
    const millis = (hold.heldAt - first.acquiredAt) / 1_000;
    violations.push(
      `validity: ${hold.client} considered itself the holder of ${hold.name} ${millis} ms after ${first.client} had acquired it`,
    );
  });
  return violations;
}

/**
 * No holder finds its lock held after the store was seen with a later holder, which may never have told. An expired lock
 * without a later holder proves nothing: the renewal of a frozen process may have begun in time, and end late. Nor does
 * what was seen before the request: a failover may have lost a claim that no replica had confirmed, and nobody was granted.
 */
function validityAtStore(
  inOrder: readonly Hold[],
  inspections: readonly HistoryEvent[],
  steps: readonly Span[],
): readonly CampaignViolation[] {
  const violations: CampaignViolation[] = [];
  const seen = inspections.toSorted((a, b) => a.time - b.time);
  let first = 0;
  for (const hold of inOrder.toSorted((a, b) => a.requestedAt - b.requestedAt)) {
    while ((seen[first]?.time ?? Number.POSITIVE_INFINITY) < hold.requestedAt) first += 1;
    const endedAt = timeOfLater(seen, first, hold);
    if (endedAt === undefined || isExcused(hold, steps)) continue;
    const millis = ((hold.heldAt ?? 0) - endedAt) / 1_000;
    violations.push(
      `validity at the store: ${hold.client} considered itself the holder of ${hold.name} ${millis} ms after the store had a later one than ${hold.token}`,
    );
  }
  return violations;
}

/** When the store was first seen with a later holder, of what was seen from `first` on until the lock was last found held. */
function timeOfLater(
  seen: readonly HistoryEvent[],
  first: number,
  { token, heldAt = 0 }: Hold,
): number | undefined {
  for (let at = first; at < seen.length; at += 1) {
    const { time, token: later = "" } = seen[at] as HistoryEvent;
    if (time >= heldAt) return undefined;
    if (later > token) return time;
  }
  return undefined;
}

function isExcused(
  { requestedAt, heldAt = 0 }: Pick<Hold, "requestedAt" | "heldAt">,
  steps: readonly Span[],
): boolean {
  return steps.some(({ from, to }) => requestedAt <= to && heldAt >= from);
}

/** No release is answered "released" that was requested after a later acquisition. */
function releases(inOrder: readonly Hold[]): readonly CampaignViolation[] {
  const violations: CampaignViolation[] = [];
  forEachWithLater(inOrder, (hold, first) => {
    if (!first || hold.releasedAt === undefined || hold.releasedAt <= first.acquiredAt) return;
    violations.push(
      `release by the owner: ${hold.client} was answered "released" for ${hold.name}, which ${first.client} had acquired before`,
    );
  });
  return violations;
}

/** Leaves out that locks were found to be held which a step of the store's clock may have ended early: no model has that clock. */
export function withoutExcused(events: readonly HistoryEvent[]): readonly HistoryEvent[] {
  const steps = clockSteps(events);
  const requested = new Map<string, number>();
  return events.filter(({ client, operation, type, time, until = time }) => {
    if (operation === "acquire" && type === "invoke") requested.set(client, time);
    const isHeld = operation === "hold" && type === "ok";
    return (
      !isHeld || !isExcused({ requestedAt: requested.get(client) ?? time, heldAt: until }, steps)
    );
  });
}

function overlapsOf(inOrder: readonly Hold[]): number {
  let overlaps = 0;
  forEachWithLater(inOrder, ({ usedAt = 0 }, first) => {
    if (first && usedAt > first.acquiredAt) overlaps += 1;
  });
  return overlaps;
}

/** Calls `each` with every hold, the earliest acquisition among those with a higher token, and the hold with the next token. */
function forEachWithLater(
  inOrder: readonly Hold[],
  each: (hold: Hold, first: Hold | undefined, next: Hold | undefined) => void,
): void {
  let first: Hold | undefined;
  let next: Hold | undefined;
  for (const hold of inOrder.toReversed()) {
    each(hold, first, next);
    if (!first || hold.acquiredAt < first.acquiredAt) first = hold;
    next = hold;
  }
}

/** Finds uses of a resource that began after a use under a higher token had succeeded, and succeeded as well. */
function lateWrites(events: readonly HistoryEvent[]): readonly CampaignViolation[] {
  const violations: CampaignViolation[] = [];
  const highest = new Map<string, string>();
  const begun = new Map<string, string>();
  for (const event of events.filter(isUse).toSorted((a, b) => a.time - b.time)) {
    const { client, type, operation, name, token = "" } = event;
    const resource = operation === "sale" ? `the stock of ${name}` : `the register of ${name}`;
    const confirmed = highest.get(resource) ?? "";
    if (type === "invoke") {
      begun.set(client, confirmed);
    } else if (type === "ok" && !event.replayed) {
      const before = begun.get(client) ?? "";
      if (token < before) {
        violations.push(
          `late write: ${client} used ${resource} under ${token}, after ${before} was confirmed`,
        );
      }
      if (token > confirmed) highest.set(resource, token);
    }
  }
  return violations;
}

function isUse({ operation }: HistoryEvent): boolean {
  return USES.includes(operation);
}

/** The ledger of a sku, oldest entry first, and its stock. */
export interface Stock {
  readonly sku: string;
  readonly supplied: number;
  readonly onHand: number | undefined;
  readonly entries: readonly LedgerEntry[];
}

/** Compares the store's ledger with what the clients were answered. `events` are those of the sku alone. */
export function judgeStock(
  { sku, supplied, onHand, entries }: Stock,
  events: readonly HistoryEvent[],
): readonly CampaignViolation[] {
  const violations: CampaignViolation[] = [];
  const violate = (text: CampaignViolation) => violations.push(text);
  const found = Map.groupBy(entries, ({ operationId = "" }) => callOf(operationId));
  const asked = Map.groupBy(events, ({ id = "" }) => id);
  let left = supplied;
  let highest = "";
  for (const { remaining, quantity, fence = "", operationId } of entries) {
    left -= quantity;
    if (remaining !== left)
      violate(`stock: ${operationId} left ${remaining} of ${sku}, not ${left}`);
    if (fence < highest) violate(`late write: ${operationId} under ${fence} after ${highest}`);
    highest = fence;
  }
  if (onHand !== left) violate(`stock: ${sku} has ${onHand} units, and ${left} by its ledger`);
  for (const id of found.keys()) {
    if (!asked.has(id)) violate(`stock: nobody asked for ${id} of ${sku}`);
  }
  for (const [id, calls] of asked) {
    const problem = problemOf(calls, found.get(id) ?? []);
    if (problem) violate(`${problem}: ${id} of ${sku}`);
  }
  return violations;
}

/** Operation ids are `CALL/NUMBER` for sales, and `RUN/UUID` for runs, whose repetition would have another id. */
function callOf(operationId: string): string {
  return operationId.slice(0, operationId.lastIndexOf("/"));
}

/** `calls` are the events of one sale, which may have been repeated, or of one run. */
function problemOf(
  calls: readonly HistoryEvent[],
  entries: readonly LedgerEntry[],
): CampaignViolation | undefined {
  const [{ operation, units = 1 }] = calls as readonly [HistoryEvent];
  const ends = calls.filter(({ type }) => type !== "invoke");
  const applied = ends.filter(({ type }) => type === "ok");
  const ids = new Set(entries.map(({ operationId }) => operationId));
  if (operation === "run") {
    if (entries.length > 1) return "once per transaction: it sold twice";
    return applied.length > 0 && entries.length === 0
      ? "once per transaction: it completed, and sold nothing"
      : undefined;
  }
  if (ids.size < entries.length) return "once per operation id: it was applied twice";
  if (ids.size !== 0 && ids.size !== units) return `stock: ${ids.size} of ${units} units were sold`;
  if (applied.length > 0 && entries.length === 0) return "stock: the confirmed sale is lost";
  const isRefused = ends.length > 0 && ends.every(({ type }) => type === "fail");
  if (isRefused && entries.length > 0) return "known errors: it failed, and was applied";
  const last = entries.at(-1)?.remaining;
  const other = applied.find(({ remaining }) => remaining !== last);
  return other && `once per operation id: it was answered ${other.remaining} left, not ${last}`;
}
