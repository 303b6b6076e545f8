/** Resumes the run of test/steps/large-histories.process.test.ts in a file, and prints its output. */
import { createRuntime } from "../../core/steps/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { largeResults } from "../support/large-results.ts";

const [file = ""] = process.argv.slice(2);
const database = sqliteDatabase(file);
const runtime = createRuntime({ journal: sqlJournal(database), workflows: [largeResults] });
const outcome = await runtime.resume("r");
process.stdout.write(`${outcome.status === "completed" ? outcome.output : outcome.status}\n`);
await database.close();
