import { table } from "../support/markdown.ts";
import { FAULTS, type FaultCounts } from "./nemesis.ts";

/** Says how often each fault has met something on each store, or by a letter why the store does not have it. */
export function faultMatrix(
  reports: readonly { readonly store: string; readonly faults: FaultCounts }[],
): string {
  const reasons = [
    ...new Set(
      reports.flatMap(({ faults }) =>
        FAULTS.flatMap((name) => ("not" in faults[name] ? [faults[name].not] : [])),
      ),
    ),
  ];
  const letterOf = (reason: string) =>
    String.fromCharCode("a".charCodeAt(0) + reasons.indexOf(reason));
  const cell = (count: FaultCounts[keyof FaultCounts]) => {
    if ("not" in count) return letterOf(count.not);
    return count.met > 0 ? String(count.met) : "**0**";
  };
  const rows = FAULTS.map((name) => [name, ...reports.map(({ faults }) => cell(faults[name]))]);
  const legend = reasons.map((reason) => `- ${letterOf(reason)}: ${reason}`);
  return [table(["fault", ...reports.map(({ store }) => store)], rows), "", ...legend].join("\n");
}
