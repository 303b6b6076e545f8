import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { asText, sql } from "../../core/database/sql.ts";
import { runScript } from "../support/script.ts";
import {
  type DatabaseUnderTest,
  sqliteSteps,
  sqlServerSteps,
} from "../support/steps-under-test.ts";
import { until } from "../support/until.ts";

const [mysql] = inject("sqlServers");
const [postgres] = inject("postgresServers");
if (!mysql || !postgres) throw new Error("the tests have no MySQL or no PostgreSQL server");

/** The steps in which a process is frozen. In SQLite, a transaction of a frozen process locks all others out. */
const KINDS = [
  { name: "sqlite", open: sqliteSteps, places: ["plain"] },
  { name: mysql.name, open: () => sqlServerSteps(mysql), places: ["first", "plain", "last"] },
  { name: postgres.name, open: () => sqlServerSteps(postgres), places: ["first", "plain", "last"] },
];

describe.each(KINDS)("steps on $name", ({ open, places }) => {
  let under: DatabaseUnderTest;

  beforeAll(async () => {
    under = await open();
  });

  afterAll(() => under.close());

  test.each(places)(
    "a process that is frozen in %s past its lease has no further effect, and another process ends the run",
    async (place) => {
      const { journal, locks } = under.open();
      const id = `frozen-${crypto.randomUUID()}`;
      using frozen = runScript("order", under.url, id, place, "3000");
      // The process stops itself at this step.
      expect(await frozen.line()).toBe(place);
      await sleep(3_100);
      const { epoch = 0n } = (await journal.show(id)) ?? {};
      using other = runScript("order", under.url, id, "nowhere", "30000");
      // In a transaction, the process keeps its claim of the resource until the server notices the lost client.
      const isInside = place !== "plain";
      if (!isInside) expect(await other.line()).toBe("completed");
      else await until(async () => ((await journal.show(id))?.epoch ?? 0n) > epoch);
      if (isInside) await sleep(300);
      frozen.child.kill("SIGCONT");
      expect(await frozen.line()).toBe("busy");
      if (isInside) expect(await other.line()).toBe("completed");
      expect(await Promise.all([frozen.ended, other.ended])).toEqual([0, 0]);
      const rows = await under.database.read(sql`SELECT name FROM effect ORDER BY name`);
      const effects = rows.map((row) => asText(row.name)).filter((name) => name.startsWith(id));
      expect(effects).toEqual([`${id} first`, `${id} last`]);
      const run = await journal.show(id);
      expect(run?.status).toBe("completed");
      expect(run?.records.map(({ key }) => key)).toEqual(["first", "plain", "last"]);
      await locks.close();
    },
  );
});
