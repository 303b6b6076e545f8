import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { asText, sql } from "../../core/database/sql.ts";
import { sqlJournal } from "../../core/journal/sql.ts";
import { carry } from "../scripts/five-steps.ts";
import { runScript } from "../support/script.ts";
import { type DatabaseUnderTest, mysqlSteps, sqliteSteps } from "../support/steps-under-test.ts";

const [server] = inject("sqlServers");
if (!server) throw new Error("there is no server");

const KINDS = [
  { name: "sqlite", open: sqliteSteps },
  { name: server.name, open: () => mysqlSteps(server) },
];

const RECORDS = ["map[a]", "map[b]", "nap", "nap@1 started", "plain", "tx", "undone"];

/** How many processes are killed, and runs resumed, at a time. */
const AT_ONCE = 8;

describe.each(KINDS)("a run of five steps on $name", ({ name, open }) => {
  let under: DatabaseUnderTest;

  beforeAll(async () => {
    under = await open();
  });

  afterAll(() => under.close());

  test.each([
    { how: "completes", fails: false, more: [] },
    { how: "is undone", fails: true, more: ["~failure", "~undo/undone"] },
  ])(
    "that $how does so wherever its process is killed",
    async ({ how, fails, more }) => {
      using counting = runScript("five-steps", under.url, `count ${how}`, fails ? "fails" : "");
      const points = Number(await counting.line());
      expect(points).toBeGreaterThan(20);
      process.stderr.write(`kill matrix: ${points} points on ${name} where the run ${how}\n`);

      let next = 1;
      let kills = 0;
      const killAndResume = async () => {
        for (let point = next++; point <= points; point = next++) {
          const runId = `killed at ${point}, ${how}`;
          const args = [under.url, runId, fails ? "fails" : "", String(point)];
          using killed = runScript("five-steps", ...args);
          // On a slow machine it may have renewed what it did not when the points were counted, or the reverse.
          if ((await killed.ended) === "SIGKILL") kills += 1;
          const { outcome } = await carry(under.url, runId, fails, 0);
          expect(outcome, runId).toMatchObject(
            fails ? { status: "failed", compensated: true } : { status: "completed" },
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
          if (key !== "~failure" && key !== "nap@1 started") expect(outcome, runId).toBe("ok");
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, killAndResume));
      expect(kills).toBeGreaterThan(0.9 * points);
    },
    240_000,
  );
});
