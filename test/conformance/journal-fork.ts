import { describe, expect, test } from "vitest";
import type { ForkRequest } from "../../core/journal/changes.ts";
import { mapConcurrent } from "../../functions/invocation/map-concurrent.ts";
import type { JournalFixture } from "../support/journal-under-test.ts";
import { expectRejection } from "../support/rejection.ts";
import { claimed, claimOf, DONE, newRunId, record, running, STALE } from "../support/runs.ts";
import { pause } from "../support/until.ts";

/** Tests of runs that use the results of other runs. */
export function describeForks({ journal, underTest }: JournalFixture): void {
  const mark = record("~fork/1/origin", { kind: "fork", value: undefined });

  const requestOf = (more: Partial<ForkRequest> = {}): ForkRequest => ({
    ...{ runId: newRunId(), owner: "an operator", step: "c", mark },
    ...{ keep: [], supersede: [], signals: [], ...more },
  });

  describe("a fork", () => {
    test("is due with the origin's input and turn, and with copies that do not depend on it", async () => {
      const parent = { runId: newRunId(), signal: "child" };
      const turn = { queue: `queue-${newRunId()}`, key: "tenant", priority: 7 };
      const { claim, ...origin } = await running(journal, { version: 3, parent, turn });
      const more = { kind: "tx", argsHash: "hash", fence: "1.2", took: 3, waited: 4 } as const;
      for (const key of ["a", "b", "c", "d"]) await journal.append(origin, record(key, more));
      for (const dedupeId of ["1", "2", "3"]) {
        await journal.signal(origin.runId, { name: "s", dedupeId, payload: dedupeId });
      }
      const before = await journal.show(origin.runId);
      const request = requestOf({ keep: ["a"], supersede: ["b", "missing"], signals: [1, 3] });
      expect(await journal.fork(origin, request)).toBe("forked");
      expect(await journal.show(origin.runId)).toEqual({
        ...before,
        forks: [request.runId],
        now: expect.anything(),
      });
      const about = { runId: origin.runId, step: "c" };
      expect(await journal.find(request.runId)).toMatchObject({ status: "parked", origin: about });

      await journal.finish(origin, { ...DONE, keep: 0 });
      await pause(5);
      // The expired origin makes room for another run with its id.
      const { ttl: _, ...another } = claim;
      expect(await journal.start([another])).toMatchObject([{ kind: "parked" }]);
      const fork = await claimed(journal, { ...claim, runId: request.runId });
      const { workflow, input } = claim;
      expect(fork).toMatchObject({ workflow, version: 3, input, parent: undefined, crashes: 0 });
      const old = `~old/${origin.epoch}/b`;
      expect(fork.records.map(({ key }) => key)).toEqual(["a", old, mark.key]);
      expect(fork.records[0]).toEqual(before?.records[0]);
      expect(fork.epoch).not.toBe(origin.epoch);
      expect(fork.signals.map(({ dedupeId }) => dedupeId)).toEqual(["1", "3"]);
      const key = { runId: request.runId, epoch: fork.epoch };
      await journal.append(key, record("c"));
      await journal.signal(key.runId, { name: "s", dedupeId: "2", payload: "" });
      const shown = await journal.show(request.runId);
      expect(shown).toMatchObject({ origin: about, forks: [], ...turn });
      expect(shown?.records.map((one) => one.key)).toEqual(["a", old, mark.key, "c"]);
      expect(shown?.signals.map(({ dedupeId }) => dedupeId)).toEqual(["1", "3", "2"]);
      // The signals that it was made with do not wake it.
      await journal.park(key, { reason: "signal", wakeIn: 600_000, signalsSeen: 3 });
      expect((await journal.take({ ...claim, runId: request.runId })).kind).toBe("parked");
    });

    test("is made once, for one origin and step", async () => {
      const { claim, ...origin } = await running(journal);
      await journal.append(origin, record("a"));
      const request = requestOf({ keep: ["a"] });
      const both = [journal.fork(origin, request), journal.fork(origin, request)];
      expect(await Promise.all(both)).toEqual(["forked", "forked"]);
      const { epoch } = await claimed(journal, { ...claim, runId: request.runId });
      await journal.append({ ...request, epoch }, record("c"));
      expect(await journal.fork(origin, request)).toBe("forked");
      expect((await journal.show(request.runId))?.records).toHaveLength(3);
      expect(await journal.fork(origin, { ...request, step: "b" })).toBe("conflict");
      const other = await running(journal);
      expect(await journal.fork(other, request)).toBe("conflict");
      expect(await journal.fork(origin, requestOf({ runId: other.runId }))).toBe("conflict");
    });

    test("is refused for an origin that is gone or has another epoch", async () => {
      const { claim: _, ...origin } = await running(journal);
      const request = requestOf();
      const later = { ...origin, epoch: origin.epoch + 1n };
      expect(await journal.fork(later, request)).toBe("changed");
      expect(await journal.fork({ ...origin, runId: newRunId() }, request)).toBe("changed");
      expect(await journal.find(request.runId)).toBeUndefined();
    });

    test("takes the id of a run whose retention is over, and keeps out its holder", async () => {
      const { claim: _, ...origin } = await running(journal);
      const { claim, ...expired } = await running(journal);
      await journal.append(expired, record("old"));
      await journal.finish(expired, { ...DONE, keep: 0 });
      await pause(5);
      expect(await journal.fork(origin, requestOf({ runId: expired.runId }))).toBe("forked");
      await expectRejection(journal.append(expired, record("late")), STALE);
      expect((await claimed(journal, claim)).records.map(({ key }) => key)).toEqual([mark.key]);
    });

    test("may copy more records and signals than one statement names", async ({ skip }) => {
      skip(underTest.slowness !== undefined, underTest.slowness);
      const { claim: _, ...origin } = await running(journal);
      const names = Array.from({ length: 501 }, (_, i) => `s${i}`);
      await mapConcurrent(names, 16, (key) => journal.append(origin, record(key)));
      const send = (dedupeId: string) =>
        journal.signal(origin.runId, { name: "s", dedupeId, payload: "" });
      await mapConcurrent(names, 16, send);
      const { records = [], signals = [] } = (await journal.show(origin.runId)) ?? {};
      const keys = records.map(({ key }) => key);
      const request = requestOf({ keep: keys, signals: signals.map((_, i) => i + 1) });
      expect(await journal.fork(origin, request)).toBe("forked");
      const fork = await claimed(journal, claimOf(request.runId));
      expect(fork.records.map(({ key }) => key)).toEqual([...keys, mark.key]);
      expect(fork.signals).toEqual(signals);
    });

    test("refuses invalid ids, keys and numbers", async () => {
      const { claim: _, ...origin } = await running(journal);
      const refused = async (more: Partial<ForkRequest>, message: RegExp) =>
        expect(journal.fork(origin, requestOf(more))).rejects.toThrow(message);
      await refused({ runId: "" }, /run id/);
      await refused({ step: "" }, /step/);
      await refused({ keep: ["x".repeat(513)] }, /record key/);
      await refused({ signals: [0] }, /signal/);
    });
  });
}
