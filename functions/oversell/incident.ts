import {
  type Frame,
  type Grant,
  Narrator,
  type Step,
  type StockPoint,
  tokenOf,
} from "./narrator.ts";
import { type Handling, holdsOf, type Observations } from "./observations.ts";
import { judge, type StrategyReport } from "./report.ts";
import { hasSharedLock, type Strategy } from "./strategy.ts";
import { type Interval, overlapping, type TraceEvent } from "./trace.ts";

/** A replay with one strategy, as it is drawn. Times are in milliseconds since the start of the sale. */
export interface Incident {
  readonly report: StrategyReport;
  readonly stock: number;
  readonly workers: number;
  readonly millis: number;

  /** The beliefs of workers, in order of their beginning. */
  readonly beliefs: readonly Belief[];

  /** The holders of the lock according to the store. */
  readonly grants: readonly Grant[];

  /** The requests to the lock store and to the stock. */
  readonly messages: readonly Message[];

  /** The time that workers spent in slow calls or frozen. */
  readonly delays: readonly Delay[];

  /** The stock after each sale. */
  readonly curve: readonly StockPoint[];
  readonly frames: readonly Frame[];

  /** Shortens long fences for display. */
  readonly shorten: (token: string) => string;
}

export interface Belief extends Interval {
  readonly worker: number;

  /** Whether another worker already considered itself the holder. */
  readonly overlaps: boolean;
}

/** A request to the lock store (`asks` and `releases`), or one to the stock with its answer. */
export interface Message extends Interval {
  readonly worker: number;

  /** The fence that the request carries. */
  readonly token: string | undefined;
  readonly type:
    | ("asks" | "releases")
    | ("claimed" | "reads" | "takes" | "sold" | "replayed" | "sold-out" | "refused");
}

/** Whether a request is to the lock store. */
export function isToLockStore({ type }: Message): boolean {
  return type === "asks" || type === "releases";
}

export interface Delay extends Interval {
  readonly worker: number;
  readonly type: "slow" | "frozen" | "killed";
}

/** Returns what a replay shows. */
export function incidentOf(observations: Observations): Incident {
  const steps = observations.handlings
    .flatMap((handling) => handling.trace.map((event) => ({ ...event, handling })))
    .sort((a, b) => a.at - b.at);
  const { stock, strategy, handlings, millis } = observations;
  const narrator = new Narrator(observations);
  for (const step of steps) narrator.tell(step);
  narrator.finish(millis);
  const holds = holdsOf(handlings);
  const late = new Set(overlapping(holds));
  return {
    report: judge(observations),
    stock,
    workers: Math.max(0, ...handlings.map(({ worker }) => worker + 1)),
    millis,
    beliefs: holds
      .map((hold) => ({
        from: hold.from,
        to: hold.to,
        worker: hold.handling.worker,
        overlaps: late.has(hold),
      }))
      .sort((a, b) => a.from - b.from),
    grants: narrator.grants,
    messages: steps.flatMap((step) => toMessage(step, strategy)),
    delays: handlings.flatMap((handling) => delaysOf(handling, observations)),
    curve: narrator.curve,
    frames: narrator.frames,
    shorten: narrator.shorten,
  };
}

function toMessage({ type, at, sentAt, handling }: Step, strategy: Strategy): readonly Message[] {
  const { fence } = strategy;
  const { worker } = handling;
  // The trace has no answer of the lock store to a release, and a grant as the answer to a request.
  const isRequest = type === "asks" || type === "releases";
  if (isRequest ? !hasSharedLock(strategy) : sentAt === undefined) return [];
  const isFenced = fence !== "none" && type !== "asks" && type !== "reads";
  const hasFence = isFenced || type === "releases";
  const token = hasFence ? tokenOf(handling) : undefined;
  return [{ type: type as Message["type"], from: sentAt ?? at, to: at, worker, token }];
}

function delaysOf({ worker, trace }: Handling, { ttlMillis }: Observations): readonly Delay[] {
  const at = (type: TraceEvent["type"]) => trace.find((event) => event.type === type)?.at;
  const span = (from: number | undefined, to: number | undefined, type: Delay["type"]) =>
    from === undefined || to === undefined ? [] : [{ worker, from, to, type }];
  const [calls, identified, freezes, dies] = [
    at("calls"),
    at("identified"),
    at("freezes"),
    at("dies"),
  ];
  const isSlow = (identified ?? 0) - (calls ?? 0) > ttlMillis / 2;
  return [
    ...(isSlow ? span(calls, identified, "slow") : []),
    ...span(freezes, at("wakes"), "frozen"),
    ...span(dies, dies, "killed"),
  ];
}
