import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { asText, sql } from "../../core/database/sql.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { executeFiveSteps } from "../scripts/five-steps.ts";
import { WHOLE_MATRIX } from "../support/matrix.ts";
import { runScript } from "../support/script.ts";
import { type DatabaseUnderTest, mysqlSteps, sqliteSteps } from "../support/steps-under-test.ts";

const [server] = inject("sqlServers");
if (!server) throw new Error("the tests have no MySQL server");

const KINDS = [
  { name: "sqlite", open: sqliteSteps, first: 1 },
  { name: server.name, open: () => mysqlSteps(server), first: 2 },
];

/** By default, the databases take turns: each point on one of them. */
const STEP = WHOLE_MATRIX ? 1 : KINDS.length;

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

/** How many processes are killed at a time. */
const AT_ONCE = 8;

describe.each(KINDS)("runs of five steps on $name", ({ name, open, first }) => {
  let under: DatabaseUnderTest;

  beforeAll(async () => {
    under = await open();
  });

  afterAll(() => under.close());

  test.each([
    { how: "completes", fails: false, more: [] },
    { how: "is undone", fails: true, more: ["~failure", "~undo/plain", "~undo/undone"] },
  ])(
    "a run $how at whatever call its process is killed",
    async ({ how, fails, more }) => {
      using counting = runScript("five-steps", under.url, `count ${how}`, fails ? "fails" : "");
      const points = Number(await counting.line());
      expect(points).toBeGreaterThan(20);
      process.stderr.write(`kill matrix: ${points} points on ${name} where the run ${how}\n`);

      let next = WHOLE_MATRIX ? 1 : first;
      let kills = 0;
      const killAndResume = async () => {
        for (let point = next; point <= points; point = next) {
          next += STEP;
          const runId = `killed at ${point}, ${how}`;
          const args = [under.url, runId, fails ? "fails" : "", String(point)];
          using killed = runScript("five-steps", ...args);
          // On a slow machine, the number of renewals may differ from that of the counted run.
          if ((await killed.ended) === "SIGKILL") kills += 1;
          const { outcome } = await executeFiveSteps(under.url, runId, fails, 0);
          expect(outcome, runId).toMatchObject(
            fails ? { status: "failed", compensated: "yes" } : { status: "completed" },
          );
          await check(runId);
        }
      };
      const check = async (runId: string) => {
        const rows = await under.database.read(
          sql`SELECT name FROM effect WHERE name LIKE ${`${runId} %`} ORDER BY name`,
        );
        const effects = rows.map((row) => asText(row.name).slice(runId.length + 1));
        const undone = fails ? ["~undo/undone"] : [];
        expect(effects.toSorted(), runId).toEqual(["tx", "undone", ...undone].toSorted());
        const run = await sqlJournal(under.database).show(runId);
        const keys = run?.records.map(({ key }) => key).toSorted();
        expect(keys, runId).toEqual([...RECORDS, ...more].toSorted());
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
