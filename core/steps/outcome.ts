import type { Ended } from "../journal/journal.ts";
import { decode, decodeError } from "./codec.ts";
import type { RunOutcome } from "./workflow.ts";

/** How a run went that has ended. */
export function outcomeOf(
  runId: string,
  { status, value, compensated }: Omit<Ended, "at">,
): RunOutcome<unknown> {
  if (status === "completed") return { runId, status, output: decode(value) };
  return { runId, status: "failed", error: decodeError(value), compensated };
}
