import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { temporaryFile } from "../support/under-test.ts";
import { compareSql } from "./sql.ts";
import { prepare, STEPS, workflowsOn } from "./steps.ts";
import type { Suite } from "./suite.ts";

/** Locks, stock and steps in a SQLite file, compared with statements of node:sqlite under the same settings. */
export const sqliteSuite: Suite = async () => {
  const { file, remove } = await temporaryFile();
  const ours = sqliteDatabase(file);
  await prepare(ours);
  const inMemory = memoryLocks();
  const contest = await compareSql({
    ours,
    url: `sqlite:${file}`,
    text: "TEXT",
    aims: { pair: 1.4, one: 0.6 },
  });
  return {
    server: `SQLite ${process.versions.sqlite}`,
    contenders: [
      ...contest.contenders,
      { name: STEP, batch: STEPS, run: workflowsOn(ours, inMemory).plain },
    ],
    comparisons: [
      ...contest.comparisons,
      { name: "CPU of a plain step", of: STEP, by: "cpu", aim: 0.2 },
    ],
    async close() {
      await inMemory.close();
      await contest.close();
      await remove();
    },
  };
};

const STEP = "plain steps, 1 at a time";
