import { describe, expect, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import {
  LARGE_RESULT,
  LONGEST_RESULT,
  LONGEST_VALUE,
  RECORDS_PER_PAGE,
} from "../../core/journal/records.ts";
import { mapConcurrent } from "../../functions/invocation/map-concurrent.ts";
import type { JournalFixture } from "../support/journal-under-test.ts";
import { expectRejection } from "../support/rejection.ts";
import { claimed, FOREVER, record, running, STALE, taken } from "../support/runs.ts";
import { until } from "../support/until.ts";

/** Tests of long histories and large results. */
export function describeHistories({ journal, underTest }: JournalFixture): void {
  describe("a history", () => {
    test("is read in pages, which hold each record once and in order", async () => {
      const { claim, ...run } = await running(journal);
      const keys = Array.from({ length: 7 }, (_, i) => `s${i}/x`);
      for (const key of keys) await journal.append(run, record(key));
      const first = await journal.show(run.runId, { limit: 3 });
      const second = await journal.records(run.runId, { limit: 3, after: first?.next });
      const third = await journal.records(run.runId, { limit: 3, after: second.next });
      const pages = [first?.records ?? [], second.records, third.records];
      expect(pages.map((page) => page.map(({ key }) => key))).toEqual([
        keys.slice(0, 3),
        keys.slice(3, 6),
        keys.slice(6),
      ]);
      expect(third.next).toBeUndefined();
      expect((await journal.records(run.runId, { limit: 7 })).next).toBeUndefined();
    });

    test("refuses a text that is no cursor, and pages beyond the limit", async () => {
      const run = await running(journal);
      for (const page of [{ after: "nowhere" }, { after: "" }, { limit: 0 }, { limit: 1_001 }]) {
        await expect(journal.records(run.runId, page)).rejects.toThrow(RangeError);
        await expect(journal.show(run.runId, page)).rejects.toThrow(RangeError);
      }
    });

    test("comes with a claim up to a page", async ({ skip }) => {
      skip(underTest.slowness !== undefined, underTest.slowness);
      const { claim, ...run } = await running(journal);
      const keys = Array.from({ length: RECORDS_PER_PAGE + 1 }, (_, i) => `s${i}`);
      await mapConcurrent(keys, 16, (key) => journal.append(run, record(key)));
      await journal.park(run, { ...FOREVER, wakeIn: 0 });
      const next = await claimed(journal, claim);
      expect(next.records).toHaveLength(RECORDS_PER_PAGE);
      const { records, next: end } = await journal.records(run.runId, { after: next.next });
      const found = [...next.records, ...records].map(({ key }) => key);
      expect([found.toSorted(), end]).toEqual([keys.toSorted(), undefined]);
    });
  });

  describe("a large result", () => {
    /** Several chunks, whose ends fall into characters. */
    const huge = `a${"🫖é".repeat(400_000)}`;
    const limit = "x".repeat(LARGE_RESULT);

    test("stands beside its record, and is read by the record's key", async () => {
      const { claim, ...run } = await running(journal);
      const longest = "🫖".repeat(LONGEST_VALUE / 4);
      await journal.append(run, record("inside", { value: limit }));
      await journal.append(run, record("beside", { value: `${limit}x` }));
      const written = await journal.append(run, record("huge", { value: huge }));
      expect(written.valueBytes).toBe(Buffer.byteLength(huge));
      await journal.append(run, record("longest", { value: longest }));
      await journal.park(run, { ...FOREVER, wakeIn: 0 });
      const { records } = await claimed(journal, claim);
      expect(records[0]).toMatchObject({ value: limit, valueBytes: undefined });
      expect(records.slice(1).map(({ value, valueBytes }) => [value, valueBytes])).toEqual([
        [undefined, LARGE_RESULT + 1],
        [undefined, Buffer.byteLength(huge)],
        [undefined, LONGEST_VALUE],
      ]);
      const values = await journal.values(run.runId, ["huge", "longest", "inside", "missing"]);
      expect(values.get("huge") === huge && values.get("longest") === longest).toBe(true);
      expect((await journal.latest(run.runId, "hu"))?.value === huge).toBe(true);
      expect(values.has("missing")).toBe(false);
    });

    test("keeps its value when its record is superseded", async () => {
      const run = await running(journal);
      await journal.append(run, record("a", { value: huge }));
      const error = { status: "failed", value: '"why"', compensated: "yes", keep: 60_000 } as const;
      await journal.finish(run, error);
      await journal.reopen(run, { supersede: ["a"], isRetry: true });
      const key = `~old/${run.epoch}/a`;
      expect((await journal.values(run.runId, [key])).get(key) === huge).toBe(true);
    });

    test("has a limit, which is told before any I/O", async () => {
      const run = await running(journal);
      const value = "x".repeat(LONGEST_RESULT + 1);
      const refused = journal.append(run, record("a", { value }));
      await expect(refused).rejects.toThrow(
        `${value.length} bytes, the limit is ${LONGEST_RESULT}`,
      );
    });

    test("is fenced like its record, and deleted with its run", async ({ onTestFinished }) => {
      const database = underTest.openDatabase?.();
      onTestFinished(() => database?.close());
      const countOf = async (runId: string) => {
        const rows = sql`SELECT COUNT(*) AS n FROM lockstep_value WHERE run_id = ${runId}`;
        return database ? Number((await database.read(rows))[0]?.n) : undefined;
      };
      const late = await running(journal, { ttl: 100 });
      const run = await taken(journal, late.runId);
      await expectRejection(journal.append(late, record("a", { value: huge })), STALE);
      await expectRejection(journal.append(late, record("a", { value: `${limit}x` })), STALE);
      if (database) expect(await countOf(run.runId)).toBe(0);
      await journal.append(run, record("a", { value: huge }));
      if (database) expect(await countOf(run.runId)).toBe(3);
      await journal.finish(run, { status: "completed", value: "1", keep: 0 });
      await until(async () => {
        await journal.purge(100);
        return (await journal.values(run.runId, ["a"])).size === 0;
      });
      if (database) expect(await countOf(run.runId)).toBe(0);
    });
  });
}
