import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { asText, sql } from "../../core/database/sql.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { type Course, executeCourse } from "../scripts/five-steps.ts";
import { cells, EVERY_VERSION } from "../support/matrix.ts";
import { runScript } from "../support/script.ts";
import {
  type DatabaseUnderTest,
  sqliteSteps,
  sqlServerSteps,
} from "../support/steps-under-test.ts";

const [mysql] = inject("sqlServers");
const [postgres] = inject("postgresServers");
if (!mysql || !postgres) throw new Error("the tests have no MySQL or no PostgreSQL server");

const KINDS = cells([
  { name: "sqlite", open: sqliteSteps, first: 1 },
  { name: mysql.name, open: () => sqlServerSteps(mysql), first: 2 },
  { name: postgres.name, open: () => sqlServerSteps(postgres), first: 3 },
]);

/** Three databases take turns: each point on one of them. */
const STEP = EVERY_VERSION ? 1 : 3;

const RECORDS = [
  "map[a]",
  "map[b]",
  "nap",
  "nap@1 started",
  "plain",
  "plain@1 started",
  "tx",
  "undone",
];

/** How the runs go, their effects, and the keys of their last records. */
const COURSES = [
  { course: "completes", effects: ["tx", "undone"], records: RECORDS, end: { part: 1 } },
  {
    course: "is undone",
    effects: ["tx", "undone", "~undo/undone"],
    records: [...RECORDS, "~failure", "~undo/plain", "~undo/undone"],
    end: { part: 1, ending: { status: "failed", compensated: "yes" } },
  },
  { course: "continues", effects: ["tx1", "tx2"], records: ["tx2"], end: { part: 2 } },
] as const satisfies readonly { readonly course: Course; readonly [more: string]: unknown }[];

/** How many processes are killed at a time. */
const AT_ONCE = 8;

describe.each(KINDS)("runs of five steps on $name", ({ name, open, first }) => {
  let under: DatabaseUnderTest;

  beforeAll(async () => {
    under = await open();
  });

  afterAll(() => under.close());

  test.each(COURSES)(
    "a run $course at whatever call its process is killed",
    async ({ course, effects, records, end }) => {
      using counting = runScript("five-steps", under.url, `count ${course}`, course);
      const points = Number(await counting.line());
      expect(points).toBeGreaterThan(20);
      process.stderr.write(`kill matrix: ${points} points on ${name} where the run ${course}\n`);

      let next = EVERY_VERSION ? 1 : first;
      let kills = 0;
      const killAndResume = async () => {
        for (let point = next; point <= points; point = next) {
          next += STEP;
          const runId = `killed at ${point}, ${course}`;
          const args = [under.url, runId, course, String(point)];
          using killed = runScript("five-steps", ...args);
          // On a slow machine, the number of renewals may differ from that of the counted run.
          if ((await killed.ended) === "SIGKILL") kills += 1;
          await executeCourse(under.url, runId, course, 0);
          await check(runId);
        }
      };
      const check = async (runId: string) => {
        const rows = await under.database.read(
          sql`SELECT name FROM effect WHERE name LIKE ${`${runId} %`} ORDER BY name`,
        );
        const found = rows.map((row) => asText(row.name).slice(runId.length + 1));
        expect(found.toSorted(), runId).toEqual(effects.toSorted());
        const run = await sqlJournal(under.database).show(runId);
        expect(run, runId).toMatchObject({ ending: { status: "completed" }, ...end });
        const keys = run?.records.map(({ key }) => key).toSorted();
        expect(keys, runId).toEqual(records.toSorted());
        const epochs = run?.records.map(({ epoch }) => epoch) ?? [];
        expect(
          epochs.toSorted((a, b) => Number(a - b)),
          runId,
        ).toEqual(epochs);
        for (const { outcome, key } of run?.records ?? []) {
          if (key !== "~failure" && !key.endsWith(" started")) expect(outcome, runId).toBe("ok");
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, killAndResume));
      expect(kills).toBeGreaterThan((0.5 * points) / STEP);
    },
    240_000,
  );
});
