import { table } from "../support/markdown.ts";
import { FAULTS, type FaultCount, type FaultCounts, type FaultName } from "./nemesis.ts";

interface Tried {
  readonly store: string;
  readonly faults: FaultCounts;
}

/** Returns how often a fault has met something. Reports of earlier versions do not have all faults. */
export function countOf(faults: FaultCounts | undefined, fault: FaultName): FaultCount {
  return faults?.[fault] ?? { not: "not a part of this run" };
}

/** Says how often each fault has met something on each store, or by a letter why it has not. */
export function faultMatrix(
  reports: readonly Tried[],
  stores: readonly string[] = reports.map(({ store }) => store),
): string {
  const reasons: string[] = [];
  const letterOf = (reason: string) => {
    if (!reasons.includes(reason)) reasons.push(reason);
    return String.fromCharCode("a".charCodeAt(0) + reasons.indexOf(reason));
  };
  const cell = (store: string, fault: FaultName) => {
    const count = countOf(reports.find((report) => report.store === store)?.faults, fault);
    if ("not" in count) return letterOf(count.not);
    return count.met > 0 ? String(count.met) : "**0**";
  };
  const rows = FAULTS.map((fault) => [fault, ...stores.map((store) => cell(store, fault))]);
  const legend = reasons.map((reason) => `- ${letterOf(reason)}: ${reason}`);
  return [table(["fault", ...stores], rows), "", ...legend].join("\n");
}
