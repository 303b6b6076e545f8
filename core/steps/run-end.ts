import type { Journal } from "../journal/journal.ts";
import type { RunDetails } from "../journal/queries.ts";
import { isOpen } from "../journal/runs.ts";
import { sleep } from "../lock/abort.ts";
import { elapsedSince, instant, type Millis } from "../lock/time.ts";
import { unknownRun } from "./errors.ts";

/** The pause between two looks for the end of a run. */
const END_POLL: Millis = 200;

/** Waits for the end of a run. Resolves to its state, also when the wait is over. Rejects with UNKNOWN_RUN. */
export async function runAtEnd(journal: Journal, runId: string, wait: Millis): Promise<RunDetails> {
  const startedAt = instant();
  for (;;) {
    const status = (await journal.find(runId))?.status;
    const left = wait - elapsedSince(startedAt);
    if (status === undefined || !isOpen(status) || left <= 0) break;
    await sleep(Math.min(END_POLL, left));
  }
  const run = await journal.show(runId);
  if (!run) throw unknownRun(runId);
  return run;
}
