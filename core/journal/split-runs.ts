import type { NewRun } from "./runs.ts";

/** Splits runs into lists of at most `most` runs, whose inputs have at most `longest` characters. A longer input is alone. */
export function splitRuns(
  runs: readonly NewRun[],
  most: number,
  longest: number,
): readonly (readonly NewRun[])[] {
  const lists: NewRun[][] = [];
  let length = Number.POSITIVE_INFINITY;
  for (const run of runs) {
    const last = lists.at(-1);
    length += run.input.length;
    if (last && last.length < most && length <= longest) {
      last.push(run);
    } else {
      lists.push([run]);
      length = run.input.length;
    }
  }
  return lists;
}
