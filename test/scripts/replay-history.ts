/** Resumes a run of `recordHistory`, and prints its output, the milliseconds, and the largest memory of the process in MB. */
import { createRuntime } from "../../core/steps/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { LONG_HISTORIES } from "../support/long-histories.ts";

const [file = "", runId = ""] = process.argv.slice(2);
const database = sqliteDatabase(file);
const runtime = createRuntime({ journal: sqlJournal(database), workflows: LONG_HISTORIES });
const startedAt = performance.now();
const outcome = await runtime.resume(runId);
const millis = Math.round(performance.now() - startedAt);
const megabytes = Math.round(process.resourceUsage().maxRSS / 1_024);
const output = outcome.status === "completed" ? outcome.output : outcome.status;
process.stdout.write(`${JSON.stringify({ output, millis, megabytes })}\n`);
await database.close();
