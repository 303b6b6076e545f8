import { Legend, table } from "../support/markdown.ts";
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
  const legend = new Legend();
  const cell = (store: string, fault: FaultName) => {
    const count = countOf(reports.find((report) => report.store === store)?.faults, fault);
    if ("not" in count) return legend.letterOf(count.not);
    return count.met > 0 ? String(count.met) : "**0**";
  };
  const rows = FAULTS.map((fault) => [fault, ...stores.map((store) => cell(store, fault))]);
  return [table(["fault", ...stores], rows), "", ...legend.lines].join("\n");
}
