import type { SQSRecord } from "aws-lambda";
import type { Line, Unit } from "./batch.ts";
import { groupOf, isFifo } from "./message.ts";

/**
 * Puts messages with the same key together, up to `most` of them: all such of a standard queue, and of a FIFO
 * queue those that follow each other in their group. Groups do not wait for each other.
 */
export function arrange(
  records: readonly SQSRecord[],
  keyOf: (record: SQSRecord) => unknown,
  most: number,
): readonly Line[] {
  const ordered = records.some(isFifo);
  const lines = Map.groupBy(records, ordered ? groupOf : keyOf);
  return [...lines.values()].map((line) => ({ units: stretches(line, keyOf, most), ordered }));
}

function stretches(
  line: readonly SQSRecord[],
  keyOf: (record: SQSRecord) => unknown,
  most: number,
): readonly Unit[] {
  const units: SQSRecord[][] = [];
  for (const record of line) {
    const last = units.at(-1);
    const follows = last?.[0] && last.length < most && keyOf(last[0]) === keyOf(record);
    if (follows) last.push(record);
    else units.push([record]);
  }
  return units;
}
