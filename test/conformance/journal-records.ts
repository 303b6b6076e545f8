import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { LONGEST_VALUE, type NewRecord } from "../../core/journal/records.ts";
import { decode, encode } from "../../core/steps/codec.ts";

import type { JournalFixture } from "../support/journal-under-test.ts";
import {
  claimed,
  claimOf,
  DONE,
  dueQuery,
  FOREVER,
  HASH,
  newRunId,
  record,
  running,
  taken,
} from "../support/runs.ts";
import { pause } from "../support/until.ts";
import { storableValue } from "../support/values.ts";

/** Tests of records and of the validation of input. */
export function describeRecords({ underTest, journal }: JournalFixture): void {
  describe("a record", () => {
    test("is written once: a second write resolves to the existing record", async () => {
      const { claim, ...run } = await running(journal, { ttl: 30 });
      const first = await journal.append(run, record("a", { value: "1" }));
      expect(first).toMatchObject({ key: "a", value: "1", epoch: run.epoch });
      expect(await journal.append(run, record("a", { value: "2" }))).toEqual(first);
      const next = await taken(journal, claim.runId);
      expect(await journal.append(next, record("a", { value: "3" }))).toEqual(first);
      const both = await Promise.all([
        journal.append(next, record("b", { value: "1" })),
        journal.append({ ...next }, record("b", { value: "2" })),
      ]);
      expect(both[0]).toEqual(both[1]);
      const shown = await journal.show(claim.runId);
      expect(shown?.records).toEqual([first, both[0]]);
    });

    test("gives back values of all kinds exactly", async () => {
      const { claim, ...run } = await running(journal);
      const values = fc.sample(storableValue, 300);
      await journal.append(run, record("a", { value: encode(values) }));
      const read = await journal.latest(claim.runId, "a");
      expect(isDeepStrictEqual(decode(read?.value), values)).toBe(true);
    });

    test("is read as it was written, with its epoch and time", async () => {
      const { claim, ...run } = await running(journal, { ttl: 100 });
      const whole: NewRecord = {
        key: "charge~2",
        kind: "undo",
        outcome: "retry",
        attempt: 2,
        value: '{"error":"no"}',
        argsHash: HASH,
        fence: "0000000000.00000000000000000007 0000000001.00000000000000000009",
        took: 12.345,
        waited: 0,
      };
      const least: NewRecord = { ...record("least"), value: undefined };
      const written = [await journal.append(run, whole), await journal.append(run, least)];
      expect(written[0]).toEqual({ ...whole, epoch: run.epoch, at: expect.any(Date) });
      expect(written[1]).toEqual({ ...least, epoch: run.epoch, at: expect.any(Date) });
      await pause(150);
      const { records } = await claimed(journal, claim);
      expect(records).toEqual(written);
    });

    test("is ordered after all earlier records", async () => {
      const { claim, ...run } = await running(journal, { ttl: 1_000 });
      const keys = Array.from({ length: 40 }, (_, i) => `step ${(i * 7) % 40}`);
      // By the same key object and by a copy of it.
      for (const [i, key] of keys.entries()) {
        await journal.append(i % 3 ? run : { ...run }, record(key));
      }
      await Promise.all(["x", "y", "z"].map((key) => journal.append(run, record(key))));
      const shown = await journal.show(run.runId);
      expect(shown?.records.map(({ key }) => key).slice(0, 40)).toEqual(keys);
      expect(
        shown?.records
          .map(({ key }) => key)
          .sort()
          .slice(-3),
      ).toEqual(["x", "y", "z"]);
      const times = shown?.records.map(({ at }) => at.getTime()) ?? [];
      expect(times).toEqual(times.toSorted((a, b) => a - b));
      const { runId } = claim;
      const next = await taken(journal, runId);
      await journal.append(next, record("aaa"));
      expect((await journal.show(runId))?.records.at(-1)?.key).toBe("aaa");
    });

    test("may be as long as the limit, and not longer", async () => {
      const { claim, ...run } = await running(journal, { ttl: 2_000, input: "" });
      const largest = "🫖".repeat(LONGEST_VALUE / 4);
      await journal.append(run, record("longest", { outcome: "failed", value: largest }));
      await journal.append(run, record("empty", { value: "" }));
      const awkward = `${underTest.refusesZero ? "" : "\0"}ab\\'"\u0001\ufeff🫖\n`;
      await journal.append(run, record("awkward", { value: awkward }));
      await journal.signal(run.runId, { name: "a", dedupeId: "1", payload: largest });
      const tooLarge = `${largest}a`;
      const limit = new RegExp(`${LONGEST_VALUE + 1} bytes, the limit is ${LONGEST_VALUE}`);
      const refused = expect.objectContaining({ message: expect.stringMatching(limit) });
      const signal = { name: "a", dedupeId: "2", payload: tooLarge };
      for (const call of [
        () => journal.append(run, record("longer", { outcome: "failed", value: tooLarge })),
        () => journal.finish(run, { ...DONE, value: tooLarge }),
        () => journal.signal(run.runId, signal),
        () => journal.claim({ ...claimOf(newRunId()), input: tooLarge }),
      ]) {
        const error = await call().catch((reason: unknown) => reason);
        expect(error).toBeInstanceOf(RangeError);
        expect(error).toEqual(refused);
      }
      const shown = await journal.show(run.runId);
      expect(shown?.records[0]?.value === largest).toBe(true);
      expect(shown?.signals[0]?.payload === largest).toBe(true);
      expect(shown?.records[1]?.value).toBe("");
      expect(shown?.records[2]?.value).toBe(awkward);
      await journal.finish(run, { ...DONE, value: largest });
      const ended = await journal.claim(claim);
      expect(ended.kind === "ended" && ended.ending.value === largest).toBe(true);
    });

    test("with the character U+0000 is kept, or refused before any request is sent", async () => {
      const { claim: _, ...run } = await running(journal);
      const call = journal.append(run, record("zero", { value: "a\0b" }));
      if (underTest.refusesZero) await expect(call).rejects.toThrow(RangeError);
      else expect((await call).value).toBe("a\0b");
    });

    test("has a key that is compared byte for byte, as run ids are", async () => {
      const ids = ["a", "A", "a ", "a%", "á", "a\u0301", "a'b", 'a"', "a\\", "🫖", "\ufeffa"];
      const base = newRunId();
      for (const id of ids) {
        const { epoch } = await claimed(journal, claimOf(base + id, { owner: id, workflow: id }));
        const run = { runId: base + id, epoch };
        for (const key of ids) await journal.append(run, record(key, { value: key }));
        await journal.signal(run.runId, { name: id, dedupeId: id, payload: id });
      }
      for (const id of ids) {
        const shown = await journal.show(base + id);
        expect(shown).toMatchObject({ runId: base + id, owner: id, workflow: id });
        expect(shown?.records.map(({ key }) => key)).toEqual(ids);
        expect(shown?.records.map(({ value }) => value)).toEqual(ids);
        expect(shown?.signals).toMatchObject([{ name: id, dedupeId: id, payload: id }]);
      }
      const longest = { runId: `${newRunId()}${"x".repeat(240)}`.slice(0, 255) };
      const run = await claimed(journal, claimOf(longest.runId, { owner: "🫖".repeat(63) }));
      const key = "🫖".repeat(128);
      expect(await journal.append({ ...longest, epoch: run.epoch }, record(key))).toMatchObject({
        key,
      });
    });
  });

  test("bad input is refused before any I/O", async () => {
    const run = await running(journal);
    const before = await journal.show(run.runId);
    const badIds = ["", "a\0b", "x".repeat(256), "\ud800"];
    const claim = claimOf(newRunId());
    const calls: (() => Promise<unknown>)[] = badIds.flatMap((id) => [
      () => journal.claim({ ...claim, runId: id }),
      () => journal.claim({ ...claim, owner: id }),
      () => journal.claim({ ...claim, workflow: id }),
      () => journal.claim({ ...claim, parent: { runId: id, signal: "a" } }),
      () => journal.claim({ ...claim, parent: { runId: "a", signal: id } }),
      () => journal.take({ ...claim, runId: id }),
      () => journal.renew({ ...run, runId: id }, 1_000),
      () => journal.append(run, record(id.repeat(3))),
      () => journal.signal(run.runId, { name: id, dedupeId: "a", payload: "" }),
      () => journal.signal(run.runId, { name: "a", dedupeId: id, payload: "" }),
      () => journal.cancel(id),
      () => journal.show(id),
    ]);
    calls.push(
      () => journal.claim({ ...claim, inputHash: "abc" }),
      () => journal.claim({ ...claim, version: -1 }),
      () => journal.claim({ ...claim, version: 2 ** 31 }),
      () => journal.claim({ ...claim, ttl: 0 }),
      () => journal.claim({ ...claim, ttl: Number.NaN }),
      () => journal.claim({ ...claim, input: "\ud800" }),
      () => journal.claim({ ...claim, input: 5 as unknown as string }),
      () => journal.renew(run, Number.POSITIVE_INFINITY),
      () => journal.renew({ ...run, epoch: 1 as unknown as bigint }, 1_000),
      () => journal.append(run, record("a", { attempt: 0 })),
      () => journal.append(run, record("a", { took: -1 })),
      () => journal.append(run, record("a", { value: "\udc00" })),
      () => journal.append(run, record("a", { fence: "x".repeat(65_536) })),
      () => journal.park(run, { ...FOREVER, wakeIn: -1 }),
      () => journal.park(run, { ...FOREVER, signalsSeen: 0.5 }),
      () => journal.finish(run, { ...DONE, keep: -1 }),
      () => journal.claim({ ...claim, turn: { queue: "" } }),
      () => journal.claim({ ...claim, turn: { key: "x".repeat(256) } }),
      () => journal.claim({ ...claim, turn: { priority: 1_001 } }),
      () => journal.claimDue(dueQuery("a", { workflows: [{ workflow: "a", version: 1.5 }] })),
      () => journal.claimDue(dueQuery("a", { limit: 1_001 })),
      () => journal.claimDue(dueQuery("a", { queues: [""] })),
      () => journal.claimDue(dueQuery("a", { ttl: 0 })),
      () => journal.park(run, { ...FOREVER, lock: "" }),
      () => journal.setLimits("a", { concurrency: 0 }),
      () => journal.setLimits("a", { rate: { runs: 1, per: 86_400_001 } }),
      () => journal.wakeWaiting("x".repeat(513)),
      () => journal.list({ limit: 10_001 }),
      () => journal.purge(0),
    );
    for (const call of calls) {
      const error = await call().catch((reason: unknown) => reason);
      expect(error instanceof RangeError || error instanceof TypeError, String(error)).toBe(true);
    }
    expect(await journal.show(claim.runId)).toBeUndefined();
    const after = await journal.show(run.runId);
    expect({ ...after, now: undefined }).toEqual({ ...before, now: undefined });
    expect(await journal.claimDue(dueQuery("a", { workflows: [] }))).toEqual([]);
    expect(await journal.claimDue(dueQuery("a", { queues: [] }))).toEqual([]);
  });

  test("an aborted call does nothing, and rejects with the reason", async () => {
    const run = await running(journal);
    const claim = claimOf(newRunId());
    for (const reason of [new Error("enough"), "enough", null]) {
      const signal = AbortSignal.abort(reason);
      for (const call of [
        () => journal.claim(claim, signal),
        () => journal.take(claim, signal),
        () => journal.renew(run, 1_000, signal),
        () => journal.append(run, record("a"), signal),
        () => journal.park(run, FOREVER, signal),
        () => journal.finish(run, DONE, signal),
        () => journal.claimDue(dueQuery("order"), signal),
      ]) {
        expect(await call().catch((error: unknown) => ({ error }))).toEqual({ error: reason });
      }
    }
    expect(await journal.show(claim.runId)).toBeUndefined();
    expect(await journal.show(run.runId)).toMatchObject({ status: "running", records: [] });
  });
}
