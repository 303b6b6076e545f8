import { describe, expect, test } from "vitest";
import type { RunClaim, RunKey } from "../../core/journal/runs.ts";
import type { JournalFixture } from "../support/journal-under-test.ts";
import { expectRejection } from "../support/rejection.ts";
import {
  claimed,
  claimOf,
  DONE,
  FOREVER,
  HASH,
  mine,
  newRunId,
  record,
  running,
  STALE,
  taken,
} from "../support/runs.ts";
import { runScript } from "../support/script.ts";
import { pause, until } from "../support/until.ts";

/** Tests of claims, of leases, and of holders that have lost a run. */
export function describeLeases({ journal, underTest }: JournalFixture): void {
  describe("a claim", () => {
    test("creates a missing run, and returns its state", async () => {
      const claim = claimOf(newRunId(), { version: 7, parent: { runId: "p", signal: "child" } });
      expect(await journal.take({ ...claim })).toEqual({ kind: "missing" });
      const got = await claimed(journal, claim);
      expect(got).toEqual({
        kind: "claimed",
        epoch: expect.any(BigInt),
        part: 1,
        signalsSeen: 0,
        workflow: "order",
        version: 7,
        input: claim.input,
        parent: { runId: "p", signal: "child" },
        crashes: 0,
        takenOver: false,
        blocks: 0,
        cancelled: false,
        records: [],
        signals: [],
        startedAt: expect.any(Date),
        now: expect.any(Date),
      });
      expect(got.epoch).toBeGreaterThan(0n);
      expect(Math.abs(got.now.getTime() - Date.now())).toBeLessThan(60_000);
      expect(got.startedAt.getTime()).toBeLessThanOrEqual(got.now.getTime());
    });

    test("finds a held run busy, even for the same owner", async () => {
      const { claim } = await running(journal, { ttl: 25_000 });
      for (const owner of [claim.owner, "another"]) {
        const busy = await journal.claim({ ...claim, owner });
        expect(busy).toEqual({ kind: "busy", retryIn: expect.any(Number) });
        if (busy.kind !== "busy") continue;
        expect(busy.retryIn).toBeGreaterThan(0);
        expect(busy.retryIn).toBeLessThanOrEqual(25_000);
        expect((await journal.take({ ...claim, owner })).kind).toBe("busy");
      }
    });

    test("by 20 concurrent callers succeeds for one of them", async () => {
      const clients = Array.from({ length: 4 }, () => underTest.open());
      for (let round = 0; round < 3; round += 1) {
        const claim = claimOf(newRunId());
        const answers = await Promise.all(
          Array.from({ length: 20 }, (_, i) => clients[i % 4]?.journal.claim(claim)),
        );
        const kinds = answers.map((answer) => answer?.kind).sort();
        expect(kinds).toEqual([...Array(19).fill("busy"), "claimed"]);
      }
      for (const client of clients) await client.close();
    });

    test("by several processes succeeds for one of them", async ({ skip }) => {
      const { url } = underTest;
      if (url === undefined) return skip("no other process can open the store");
      const runId = newRunId();
      const scripts = Array.from({ length: 3 }, () => runScript("claim-run", url, runId, "20000"));
      for (const script of scripts) expect(await script.line()).toBe("ready");
      for (const { child } of scripts) child.kill("SIGUSR2");
      const kinds = await Promise.all(scripts.map((script) => script.line()));
      for (const script of scripts) script[Symbol.dispose]();
      const all = kinds.flatMap((line) => JSON.parse(line) as string[]).sort();
      expect(all).toEqual([...Array(20).fill("busy"), "claimed"]);
    }, 240_000);

    test("with another input or workflow is a conflict in any state of the run", async () => {
      const { claim, ...run } = await running(journal);
      const others: readonly Partial<RunClaim>[] = [
        { inputHash: HASH.replace("0", "1") },
        { workflow: "another" },
      ];
      const expectConflicts = async () => {
        for (const other of others) {
          expect(await journal.claim({ ...claim, ...other })).toEqual({ kind: "conflict" });
        }
      };
      await expectConflicts();
      await journal.park(run, { ...FOREVER, wakeIn: 0 });
      await expectConflicts();
      const next = await claimed(journal, claim);
      await journal.finish({ ...run, epoch: next.epoch }, DONE);
      await expectConflicts();
      // A later version of the code resumes a run of an earlier version.
      expect((await journal.claim({ ...claim, version: 2 })).kind).toBe("ended");
      expect((await journal.show(run.runId))?.version).toBe(1);
    });

    test("takes a run after its lease has expired, and counts consecutive expiries", async () => {
      const { claim, ...first } = await running(journal, { ttl: 50 });
      await journal.append(first, record("a"));
      await pause(80);
      const second = await claimed(journal, claim);
      expect(second).toMatchObject({ crashes: 0, input: claim.input, records: [{ key: "a" }] });
      expect(second.takenOver).toBe(true);
      expect(second.epoch).toBeGreaterThan(first.epoch);
      await pause(80);
      const third = mine(await journal.take({ ...claim, ttl: 5_000 }));
      expect(third).toMatchObject({ crashes: 1, takenOver: true, workflow: "order", version: 1 });
      expect(third.epoch).toBeGreaterThan(second.epoch);
      expect(third.startedAt).toEqual(second.startedAt);
      await journal.park({ ...first, epoch: third.epoch }, { ...FOREVER, wakeIn: 0 });
      expect((await claimed(journal, claim)).crashes).toBe(0);
    });

    test("knows of a process that was lost until the next record", async () => {
      const { claim, ...first } = await running(journal, { ttl: 50 });
      await journal.append(first, record("a"));
      await pause(80);
      let run = { ...first, epoch: (await claimed(journal, claim)).epoch };
      for (let parks = 0; parks < 2; parks += 1) {
        await journal.park(run, { ...FOREVER, wakeIn: 0 });
        const next = await claimed(journal, claim);
        expect(next.takenOver).toBe(true);
        run = { ...run, epoch: next.epoch };
      }
      await journal.append(run, record("b"));
      await journal.park(run, { ...FOREVER, wakeIn: 0 });
      expect((await claimed(journal, claim)).takenOver).toBe(false);
    });
  });

  describe("a blocked run", () => {
    const error = '"why"';

    test("keeps its error and its count, and is due after its pause", async () => {
      const { claim, ...run } = await running(journal);
      await journal.append(run, record("a"));
      await journal.block(run, { error, blocks: 3, retryIn: 60_000 });
      await journal.block(run, { error, blocks: 3, retryIn: 60_000 });
      expect(await journal.take(claim)).toEqual({
        ...{ kind: "blocked", error, retryIn: expect.any(Number) },
      });
      expect(await journal.show(run.runId)).toMatchObject({ status: "blocked", error });
      const blocked = await journal.list({ workflow: "order", status: "blocked", limit: 1_000 });
      expect(blocked.find(({ runId }) => runId === run.runId)).toMatchObject({ error });
      expect(await journal.find(run.runId)).toMatchObject({ error });
      await expectRejection(journal.append(run, record("late")), STALE);
      const other = await running(journal);
      await journal.block(other, { error, blocks: 1, retryIn: 0 });
      expect(await claimed(journal, other.claim)).toMatchObject({ blocks: 1, crashes: 0 });
    });

    test("accepts signals and a cancellation, which make it due", async () => {
      for (const wake of [
        (id: string) => journal.signal(id, { name: "a", dedupeId: "1", payload: "" }),
        (id: string) => journal.cancel(id),
      ]) {
        const { claim, ...run } = await running(journal);
        await journal.block(run, { error, blocks: 1, retryIn: 60_000 });
        expect(await wake(run.runId)).toMatch(/delivered|requested/);
        expect((await journal.take(claim)).kind).toBe("claimed");
      }
    });

    test("is due at once if it was cancelled before", async () => {
      const { claim, ...run } = await running(journal);
      await journal.cancel(run.runId);
      await journal.block(run, { error, blocks: 1, retryIn: 60_000 });
      expect((await journal.take(claim)).kind).toBe("claimed");
    });

    test("keeps its counts until a record or a park", async () => {
      const { claim, ...run } = await running(journal, { ttl: 50 });
      await pause(80);
      const crashed = await claimed(journal, { ...claim, ttl: 5_000 });
      expect(crashed).toMatchObject({ crashes: 1, blocks: 0 });
      await journal.block({ ...run, epoch: crashed.epoch }, { error, blocks: 2, retryIn: 0 });
      const again = await claimed(journal, claim);
      expect(again).toMatchObject({ crashes: 1, blocks: 2 });
      await journal.append({ ...run, epoch: again.epoch }, record("progress"));
      await pause(80);
      const after = await claimed(journal, claim);
      expect(after).toMatchObject({ crashes: 0, blocks: 0 });
      await journal.block({ ...run, epoch: after.epoch }, { error, blocks: 1, retryIn: 0 });
      const parked = await claimed(journal, { ...claim, ttl: 5_000 });
      await journal.park({ ...run, epoch: parked.epoch }, { ...FOREVER, wakeIn: 0 });
      expect(await claimed(journal, claim)).toMatchObject({ crashes: 0, blocks: 0 });
    });
  });

  describe("a holder that has lost its run", () => {
    const late = async (stale: RunKey) => {
      await expectRejection(journal.append(stale, record("late")), STALE);
      await expectRejection(journal.append(stale, record("early")), STALE);
      await expectRejection(journal.park(stale, FOREVER), STALE);
      await expectRejection(journal.finish(stale, DONE), STALE);
      expect(await journal.renew(stale, 20_000)).toBeUndefined();
    };

    test("is refused a park and an end that its successor has made as well", async () => {
      for (const write of [
        (run: RunKey) => journal.park(run, FOREVER),
        (run: RunKey) => journal.finish(run, DONE),
      ]) {
        const { claim, ...stale } = await running(journal, { ttl: 50 });
        await pause(80);
        const { epoch } = await claimed(journal, { ...claim, ttl: 20_000 });
        await write({ ...stale, epoch });
        await expectRejection(write(stale), STALE);
        await write({ ...stale, epoch });
      }
    });

    test("is refused all writes, and changes nothing", async () => {
      const { claim, ...stale } = await running(journal, { ttl: 30 });
      await journal.append(stale, record("early"));
      const next = await taken(journal, claim.runId);
      const before = await journal.show(claim.runId);
      await late(stale);
      for (const epoch of [0n, next.epoch + 1n, 2n ** 63n - 1n]) await late({ ...next, epoch });
      await late({ runId: newRunId(), epoch: next.epoch });
      const after = await journal.show(claim.runId);
      expect({ ...after, now: undefined }).toEqual({ ...before, now: undefined });
      expect(await journal.append(next, record("next"))).toMatchObject({ epoch: next.epoch });
    });

    test("has its writes either seen by its successor or refused, in any interleaving", async () => {
      const other = underTest.open();
      let before = 0;
      for (let i = 0; i < 40; i += 1) {
        const { claim, ...run } = await running(journal, { ttl: 1 });
        if (i % 2) await journal.append(run, record("early"));
        await pause(2);
        const transacting = journal.transact?.(run, { key: "tx", fences: [] }, async () =>
          record("tx"),
        );
        const writes = [
          pause(Math.random() * 3).then(() => journal.append(run, record("plain"))),
          ...(transacting ? [transacting] : []),
        ];
        const taking = pause(Math.random() * 4).then(() => other.journal.take(claim));
        const outcomes = await Promise.allSettled(writes);
        const successor = mine(await taking);
        const seen = successor.records.map(({ key }) => key).filter((key) => key !== "early");
        const written = outcomes.flatMap((outcome) => {
          if (outcome.status === "fulfilled") return [outcome.value.key];
          expect(outcome.reason).toMatchObject(STALE);
          return [];
        });
        expect([...seen].sort()).toEqual(written.sort());
        before += written.length;
      }
      expect(before).toBeGreaterThan(0);
      await other.close();
    }, 240_000);

    test("is refused all writes after its own park or end", async () => {
      const parked = await running(journal);
      await journal.append(parked, record("early"));
      await journal.park(parked, FOREVER);
      await expectRejection(journal.append(parked, record("late")), STALE);
      await expectRejection(journal.finish(parked, DONE), STALE);
      expect(await journal.renew(parked, 20_000)).toBeUndefined();
      const ended = await running(journal);
      await journal.finish(ended, DONE);
      await expectRejection(journal.append(ended, record("late")), STALE);
      await expectRejection(journal.park(ended, FOREVER), STALE);
      expect(await journal.renew(ended, 20_000)).toBeUndefined();
    });

    test("is refused all late writes after its process was frozen", async ({ skip }) => {
      const { url } = underTest;
      if (url === undefined) return skip("no other process can open the store");
      const runId = newRunId();
      using script = runScript("claim-run", url, runId, "1500");
      expect(await script.line()).toBe("ready");
      script.child.kill("SIGUSR2");
      expect(JSON.parse(await script.line())).toContain("claimed");
      script.child.kill("SIGSTOP");
      const next = await taken(journal, runId);
      await journal.append(next, record("next"));
      const before = await journal.show(runId);
      script.child.kill("SIGUSR2");
      script.child.kill("SIGCONT");
      const refused = { append: "STALE_RUN", park: "STALE_RUN", finish: "STALE_RUN" };
      expect(JSON.parse(await script.line())).toEqual({
        ...refused,
        ...(journal.transact && { transact: "STALE_RUN" }),
        renew: "undefined",
      });
      const after = await journal.show(runId);
      expect({ ...after, now: undefined }).toEqual({ ...before, now: undefined });
      expect(after?.records.map(({ key }) => key)).toEqual(["before", "next"]);
    }, 240_000);
  });

  describe("a renewal", () => {
    test("extends the lease, and never shortens it", async () => {
      const { claim, ...run } = await running(journal, { ttl: 150 });
      expect(await journal.renew(run, 20_000)).toEqual({ cancelled: false, signals: 0 });
      expect(await journal.renew(run, 1)).toBeDefined();
      await pause(200);
      expect((await journal.claim(claim)).kind).toBe("busy");
      expect((await journal.show(run.runId))?.dueAt?.getTime()).toBeGreaterThan(Date.now() + 5_000);
    });

    test("of an expired lease succeeds until another process claims the run", async () => {
      const { claim, ...run } = await running(journal, { ttl: 20 });
      await pause(50);
      await journal.append(run, record("late, but not too late"));
      expect(await journal.renew(run, 20_000)).toBeDefined();
      expect((await journal.claim(claim)).kind).toBe("busy");
    });

    test("puts the steps in progress on record, until the next one or another claim", async () => {
      const { claim, ...run } = await running(journal, { ttl: 20 });
      const steps = [
        { key: "chärge\u0000'\\", since: new Date(1_700_000_000_123) },
        { key: "ship", since: new Date(1_700_000_000_456), waitsFor: "truck/1" },
      ];
      const recorded = async () => (await journal.find(run.runId))?.inProgress;
      expect(await recorded()).toEqual([]);
      await journal.renew(run, 20, undefined, steps);
      expect(await recorded()).toEqual(steps);
      expect((await journal.show(run.runId))?.inProgress).toEqual(steps);
      await journal.renew(run, 20);
      expect(await recorded()).toEqual([]);
      await journal.renew(run, 20, undefined, steps);
      const claimed = await until(async () => {
        const answer = await journal.claim(claim);
        return answer.kind === "claimed" && answer;
      });
      expect(await recorded()).toEqual([]);
      const again = { runId: run.runId, epoch: claimed.epoch };
      await journal.renew(again, 20_000, undefined, steps);
      await journal.park(again, { reason: "sleep", wakeIn: 0, signalsSeen: 0 });
      expect(await recorded()).toEqual([]);
    });

    test("returns the number of signals, and a cancellation", async () => {
      const run = await running(journal);
      await journal.signal(run.runId, { name: "a", dedupeId: "1", payload: "" });
      // Neither a signal nor a cancellation makes a held run due.
      expect((await journal.claim(run.claim)).kind).toBe("busy");
      expect(await journal.renew(run, 20_000)).toEqual({ cancelled: false, signals: 1 });
      expect(await journal.cancel(run.runId)).toBe("requested");
      expect((await journal.claim(run.claim)).kind).toBe("busy");
      expect(await journal.renew(run, 20_000)).toEqual({ cancelled: true, signals: 1 });
    });
  });
}
