import { type Hold, holdsOf, type Observations } from "./observations.ts";
import type { Strategy } from "./strategy.ts";
import { overlapping } from "./trace.ts";

interface Figures {
  readonly sold: number;
  readonly oversold: number;
  readonly lost: number;
  readonly duplicates: number;
  readonly refused: number;
  readonly stuck: number;
}

/** Explains the result of a strategy in one sentence: "sold 37 of 30: two holders after the lock expired at 1.20 s". */
export function explain(observations: Observations, figures: Figures): string {
  const { sold, oversold, lost, duplicates, stuck } = figures;
  const clauses = [
    ...(stuck > 0 ? [`${deathIn(observations)}, and ${count(stuck, "buyer")} wait for ever`] : []),
    ...(oversold + lost > 0 ? [causeOf(observations)] : []),
    ...(oversold + lost + stuck === 0 ? [defenceOf(observations, figures)] : []),
    ...(lost > 0 && oversold === 0 ? [`${count(lost, "unit")} missing from the books`] : []),
    ...(duplicates > 0 ? [`${count(duplicates, "order")} sold twice`] : []),
  ];
  return `sold ${sold} of ${observations.stock}: ${clauses.join("; ")}`;
}

/** Says which process was killed before its lock had an expiry. */
function deathIn({ handlings }: Observations): string {
  const dead = handlings.find(
    ({ answer, trace }) => answer === "killed" && !trace.some(({ type }) => type === "holds"),
  );
  const process = dead ? `process ${dead.worker + 1}` : "a process";
  return `${process} was killed between SETNX and EXPIRE`;
}

/** Says why stock was oversold or lost. */
function causeOf({ strategy, handlings, ttlMillis }: Observations): string {
  if (strategy.stock === "decr-and-test")
    return "a process was killed between DECR and the record of its sale";
  if (strategy.lock === "none") return "buyers read the same stock, and each of them sells";
  if (strategy.lock === "in-process")
    return "each process has a lock of its own, so buyers of two processes read the same stock";
  const holds = holdsOf(handlings);
  const [later] = overlapping(holds);
  const earlier = later && holds.find((hold) => hold !== later && contains(hold, later.from));
  if (!earlier) return "two holders read the same stock";
  const most = mostAtOnce(holds);
  const holders = most === 2 ? "two holders" : `up to ${most} holders at once`;
  const freeze = earlier.handling.trace.find(({ type }) => type === "freezes");
  if (freeze && freeze.at < later.from) {
    const process = `process ${earlier.handling.worker + 1}`;
    return `${holders} after ${process} was frozen at ${seconds(freeze.at)}`;
  }
  // A worker learns after the grant that it has the lock: the lock may expire a little earlier than a ttl from then.
  const isEarly = later.from - earlier.from < ttlMillis * 0.9;
  const wasReleased = handlings.some(({ trace }) =>
    trace.some(({ type, at }) => type === "releases" && at < later.from),
  );
  const mayBeDeleted = isEarly && wasReleased && strategy.release === "unconditional";
  const at = seconds(Math.min(earlier.from + ttlMillis, later.from));
  return `${holders} after the lock ${mayBeDeleted ? "was gone" : "expired"} at ${at}`;
}

/** Says why nothing was oversold or lost. */
function defenceOf({ strategy, handlings }: Observations, { refused }: Figures): string {
  const most = mostAtOnce(holdsOf(handlings));
  if (strategy.stock === "version-column" && refused > 0)
    return `${count(refused, "write")} on an old version changed nothing`;
  if (refused > 0) {
    const holders = most === 2 ? "two" : `up to ${most}`;
    return `${holders} holders at once, and the stock refused ${count(refused, "late write")}`;
  }
  if (most > 1) return "two holders at once, which did no harm this time";
  if (strategy.lock === "none") return DEFENCES[strategy.stock] ?? "no two buyers read at once";
  return "no two holders at once";
}

const DEFENCES: Partial<Record<Strategy["stock"], string>> = {
  "conditional-decrement": "a sale subtracts a unit only if one is left",
  "decr-and-test": "DECR is atomic, and a result below zero is put back",
  "version-column": "a write on an old version changes nothing",
  "select-for-update": "each sale waits until the stock's row is free",
};

/** Returns the largest number of workers that considered themselves the holder at the same time. */
export function mostAtOnce(holds: readonly Hold[]): number {
  return Math.max(0, ...holds.map(({ from }) => holds.filter((one) => contains(one, from)).length));
}

function contains({ from, to }: Hold, at: number): boolean {
  return from <= at && at < to;
}

function seconds(millis: number): string {
  return `${(millis / 1_000).toFixed(2)} s`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
