import type { Journal } from "../journal/journal.ts";
import type { RunDetails } from "../journal/queries.ts";
import type { PageOfRecords, StepRecord } from "../journal/records.ts";

/** Reads the records after the first page. Large results stay in the journal. */
export async function readRecords(
  journal: Journal,
  runId: string,
  { records, next }: PageOfRecords,
): Promise<readonly StepRecord[]> {
  const all = [...records];
  for (let after = next; after !== undefined; ) {
    const page = await journal.records(runId, { after });
    all.push(...page.records);
    after = page.next;
  }
  return all;
}

/** Reads a run with all of its records. Large results stay in the journal. */
export async function readRun(journal: Journal, runId: string): Promise<RunDetails | undefined> {
  const run = await journal.show(runId);
  return run && { ...run, records: await readRecords(journal, runId, run), next: undefined };
}
