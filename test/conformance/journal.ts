import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fromPayload } from "../../core/journal/ending.ts";
import {
  type Claim,
  type Journal,
  LONGEST_VALUE,
  type NewRecord,
  type ParkReason,
  type RunKey,
} from "../../core/journal/journal.ts";
import type { JournalUnderTest } from "../support/journal-under-test.ts";
import { expectRejection } from "../support/rejection.ts";
import { claimed, claimOf, DONE, HASH, mine, newRunId, record, running } from "../support/runs.ts";
import { runScript } from "../support/script.ts";
import { pause, until } from "../support/until.ts";

const STALE = { code: "STALE_RUN" };

const forever = { reason: "signal", wakeIn: Number.POSITIVE_INFINITY, signalsSeen: 0 } as const;

/** Every property that a journal here must have. */
export function describeJournal(name: string, make: () => Promise<JournalUnderTest>): void {
  describe.concurrent(`a journal on ${name}`, () => {
    let underTest: JournalUnderTest;
    let journal: Journal;
    let close: () => Promise<void>;

    beforeAll(async () => {
      underTest = await make();
      ({ journal, close } = underTest.open());
    });

    afterAll(async () => {
      await close();
      await underTest.close();
    });

    /** The run, taken by somebody else as soon as its holder has lost it. */
    const taken = async (runId: string): Promise<RunKey> => {
      const take = { runId, owner: "a successor", ttl: 20_000 };
      return until(async () => {
        const answer = await journal.take(take);
        return answer.kind === "claimed" && { runId, epoch: answer.epoch };
      });
    };

    const dueOf = async (workflow: string, limit = 100): Promise<readonly string[]> =>
      journal.due({ workflows: [{ workflow, version: 1 }], limit });

    describe("a claim", () => {
      test("makes a run where there is none, and gives all that is known of it", async () => {
        const claim = claimOf(newRunId(), { version: 7, parent: { runId: "p", signal: "child" } });
        expect(await journal.take({ ...claim })).toEqual({ kind: "missing" });
        const got = await claimed(journal, claim);
        expect(got).toEqual({
          kind: "claimed",
          epoch: expect.any(BigInt),
          workflow: "order",
          version: 7,
          input: claim.input,
          parent: { runId: "p", signal: "child" },
          crashes: 0,
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

      test("finds a run that somebody works on busy, even under the same owner", async () => {
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

      test("of the same run by 20 at once gives it to one of them", async () => {
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

      test("of the same run in several processes gives it to one of them", async ({ skip }) => {
        const { url } = underTest;
        if (url === undefined) return skip();
        const runId = newRunId();
        const scripts = Array.from({ length: 3 }, () => runScript("carry", url, runId, "20000"));
        for (const script of scripts) expect(await script.line()).toBe("ready");
        for (const { child } of scripts) child.kill("SIGUSR2");
        const kinds = await Promise.all(scripts.map((script) => script.line()));
        for (const script of scripts) script[Symbol.dispose]();
        const all = kinds.flatMap((line) => JSON.parse(line) as string[]).sort();
        expect(all).toEqual([...Array(20).fill("busy"), "claimed"]);
      }, 90_000);

      test("with another input or workflow is a conflict, in whatever state the run is", async () => {
        const { claim, ...run } = await running(journal);
        const others: readonly Partial<Claim>[] = [
          { inputHash: HASH.replace("0", "1") },
          { workflow: "another" },
        ];
        const expectConflicts = async () => {
          for (const other of others) {
            expect(await journal.claim({ ...claim, ...other })).toEqual({ kind: "conflict" });
          }
        };
        await expectConflicts();
        await journal.park(run, { ...forever, wakeIn: 0 });
        await expectConflicts();
        const next = await claimed(journal, claim);
        await journal.finish({ ...run, epoch: next.epoch }, DONE);
        await expectConflicts();
        // A later version of the code goes on with what an earlier one has begun.
        expect((await journal.claim({ ...claim, version: 2 })).kind).toBe("ended");
        expect((await journal.show(run.runId))?.version).toBe(1);
      });

      test("takes a run from a holder that is not heard of, and counts how often in a row", async () => {
        const { claim, ...first } = await running(journal, { ttl: 50 });
        await journal.append(first, record("a"));
        await pause(80);
        const second = await claimed(journal, claim);
        expect(second).toMatchObject({ crashes: 1, input: claim.input, records: [{ key: "a" }] });
        expect(second.epoch).toBeGreaterThan(first.epoch);
        await pause(80);
        const third = mine(await journal.take({ ...claim, ttl: 5_000 }));
        expect(third).toMatchObject({ crashes: 2, workflow: "order", version: 1 });
        expect(third.epoch).toBeGreaterThan(second.epoch);
        expect(third.startedAt).toEqual(second.startedAt);
        await journal.park({ ...first, epoch: third.epoch }, { ...forever, wakeIn: 0 });
        expect(await claimed(journal, claim)).toMatchObject({ crashes: 0 });
      });
    });

    describe("a holder that has lost its run", () => {
      const late = async (stale: RunKey) => {
        await expectRejection(journal.append(stale, record("late")), STALE);
        await expectRejection(journal.append(stale, record("early")), STALE);
        await expectRejection(journal.park(stale, forever), STALE);
        await expectRejection(journal.finish(stale, DONE), STALE);
        expect(await journal.renew(stale, 20_000)).toBeUndefined();
      };

      test("is refused whatever it writes, and changes nothing", async () => {
        const { claim, ...stale } = await running(journal, { ttl: 30 });
        await journal.append(stale, record("early"));
        const next = await taken(claim.runId);
        const before = await journal.show(claim.runId);
        await late(stale);
        for (const epoch of [0n, next.epoch + 1n, 2n ** 63n - 1n]) await late({ ...next, epoch });
        await late({ runId: newRunId(), epoch: next.epoch });
        const after = await journal.show(claim.runId);
        expect({ ...after, now: undefined }).toEqual({ ...before, now: undefined });
        expect(await journal.append(next, record("next"))).toMatchObject({ epoch: next.epoch });
      });

      test("has written what its successor sees, or nothing, however close they come", async () => {
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
      }, 60_000);

      test("by parking or ending it itself is refused like any other", async () => {
        const parked = await running(journal);
        await journal.append(parked, record("early"));
        await journal.park(parked, forever);
        await expectRejection(journal.append(parked, record("late")), STALE);
        await expectRejection(journal.finish(parked, DONE), STALE);
        expect(await journal.renew(parked, 20_000)).toBeUndefined();
        const ended = await running(journal);
        await journal.finish(ended, DONE);
        await expectRejection(journal.append(ended, record("late")), STALE);
        await expectRejection(journal.park(ended, forever), STALE);
        expect(await journal.renew(ended, 20_000)).toBeUndefined();
      });

      test("by being frozen in another process is refused with all its late writes", async ({
        skip,
      }) => {
        const { url } = underTest;
        if (url === undefined) return skip();
        const runId = newRunId();
        using script = runScript("carry", url, runId, "1500");
        expect(await script.line()).toBe("ready");
        script.child.kill("SIGUSR2");
        expect(JSON.parse(await script.line())).toContain("claimed");
        script.child.kill("SIGSTOP");
        const next = await taken(runId);
        await journal.append(next, record("next"));
        const before = await journal.show(runId);
        script.child.kill("SIGUSR2");
        script.child.kill("SIGCONT");
        const refused = { append: "STALE_RUN", park: "STALE_RUN", finish: "STALE_RUN" };
        expect(JSON.parse(await script.line())).toEqual({
          ...refused,
          transact: "STALE_RUN",
          renew: "undefined",
        });
        const after = await journal.show(runId);
        expect({ ...after, now: undefined }).toEqual({ ...before, now: undefined });
        expect(after?.records.map(({ key }) => key)).toEqual(["before", "next"]);
      }, 90_000);
    });

    describe("a renewal", () => {
      test("keeps the run for longer, and never for less", async () => {
        const { claim, ...run } = await running(journal, { ttl: 150 });
        expect(await journal.renew(run, 20_000)).toEqual({ cancelled: false, signals: 0 });
        expect(await journal.renew(run, 1)).toBeDefined();
        await pause(200);
        expect((await journal.claim(claim)).kind).toBe("busy");
        expect((await journal.show(run.runId))?.dueAt?.getTime()).toBeGreaterThan(
          Date.now() + 5_000,
        );
      });

      test("of a lease that is over counts as long as nobody has taken the run", async () => {
        const { claim, ...run } = await running(journal, { ttl: 20 });
        await pause(50);
        await journal.append(run, record("late, but not too late"));
        expect(await journal.renew(run, 20_000)).toBeDefined();
        expect((await journal.claim(claim)).kind).toBe("busy");
      });

      test("tells of signals and of a cancellation", async () => {
        const run = await running(journal);
        await journal.signal(run.runId, { name: "a", dedupeId: "1", payload: "" });
        // Neither makes it due while somebody works on it.
        expect((await journal.claim(run.claim)).kind).toBe("busy");
        expect(await journal.renew(run, 20_000)).toEqual({ cancelled: false, signals: 1 });
        expect(await journal.cancel(run.runId)).toBe("requested");
        expect((await journal.claim(run.claim)).kind).toBe("busy");
        expect(await journal.renew(run, 20_000)).toEqual({ cancelled: true, signals: 1 });
      });
    });

    describe("a record", () => {
      test("is written once: what stands under its key is the answer", async () => {
        const { claim, ...run } = await running(journal, { ttl: 30 });
        const first = await journal.append(run, record("a", { value: "1" }));
        expect(first).toMatchObject({ key: "a", value: "1", epoch: run.epoch });
        expect(await journal.append(run, record("a", { value: "2" }))).toEqual(first);
        const next = await taken(claim.runId);
        expect(await journal.append(next, record("a", { value: "3" }))).toEqual(first);
        const both = await Promise.all([
          journal.append(next, record("b", { value: "1" })),
          journal.append({ ...next }, record("b", { value: "2" })),
        ]);
        expect(both[0]).toEqual(both[1]);
        const shown = await journal.show(claim.runId);
        expect(shown?.records).toEqual([first, both[0]]);
      });

      test("comes back as it was written, with its epoch and time", async () => {
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

      test("stands after all that was written before it", async () => {
        const { claim, ...run } = await running(journal, { ttl: 1_000 });
        const keys = Array.from({ length: 40 }, (_, i) => `step ${(i * 7) % 40}`);
        // By the same object and by another one, which nothing is known of.
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
        const next = await taken(runId);
        await journal.append(next, record("aaa"));
        expect((await journal.show(runId))?.records.at(-1)?.key).toBe("aaa");
      });

      test("may be as large as the limit, and no larger", async () => {
        const { claim, ...run } = await running(journal, { ttl: 2_000, input: "" });
        const largest = "🫖".repeat(LONGEST_VALUE / 4);
        await journal.append(run, record("largest", { value: largest }));
        await journal.append(run, record("empty", { value: "" }));
        await journal.append(run, record("awkward", { value: "a\0b\\'\"\u0001\ufeff🫖\n" }));
        await journal.signal(run.runId, { name: "a", dedupeId: "1", payload: largest });
        const tooLarge = `${largest}a`;
        const limit = new RegExp(`${LONGEST_VALUE + 1} bytes, the limit is ${LONGEST_VALUE}`);
        const refused = expect.objectContaining({ message: expect.stringMatching(limit) });
        const signal = { name: "a", dedupeId: "2", payload: tooLarge };
        for (const call of [
          () => journal.append(run, record("larger", { value: tooLarge })),
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
        expect(shown?.records[2]?.value).toBe("a\0b\\'\"\u0001\ufeff🫖\n");
        await journal.finish(run, { ...DONE, value: largest });
        const ended = await journal.claim(claim);
        expect(ended.kind === "ended" && ended.ending.value === largest).toBe(true);
      });

      test("is known by its key, and its run by its id, byte for byte", async () => {
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

    test("bad input is refused before anything is asked", async () => {
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
        () => journal.park(run, { ...forever, wakeIn: -1 }),
        () => journal.park(run, { ...forever, signalsSeen: 0.5 }),
        () => journal.finish(run, { ...DONE, keep: -1 }),
        () => journal.due({ workflows: [{ workflow: "a", version: 1.5 }], limit: 1 }),
        () => journal.due({ workflows: [], limit: 0 }),
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
      expect(await journal.due({ workflows: [], limit: 1 })).toEqual([]);
    });

    test("a call that its caller has aborted already does nothing, and rejects with the reason", async () => {
      const run = await running(journal);
      const claim = claimOf(newRunId());
      for (const reason of [new Error("enough"), "enough", null]) {
        const signal = AbortSignal.abort(reason);
        const workflows = [{ workflow: "order", version: 1 }];
        for (const call of [
          () => journal.claim(claim, signal),
          () => journal.take(claim, signal),
          () => journal.renew(run, 1_000, signal),
          () => journal.append(run, record("a"), signal),
          () => journal.park(run, forever, signal),
          () => journal.finish(run, DONE, signal),
          () => journal.due({ workflows, limit: 1 }, signal),
        ]) {
          expect(await call().catch((error: unknown) => ({ error }))).toEqual({ error: reason });
        }
      }
      expect(await journal.show(claim.runId)).toBeUndefined();
      expect(await journal.show(run.runId)).toMatchObject({ status: "running", records: [] });
    });

    describe("a parked run", () => {
      test("cannot be claimed before it wakes up, and then by one", async () => {
        const { claim, ...run } = await running(journal);
        await journal.park(run, { reason: "sleep", wakeIn: 1_500, signalsSeen: 0 });
        const parked = await journal.claim(claim);
        expect(parked).toEqual({ kind: "parked", reason: "sleep", wakeIn: expect.any(Number) });
        if (parked.kind === "parked") expect(parked.wakeIn).toBeLessThanOrEqual(1_500);
        expect((await journal.take(claim)).kind).toBe("parked");
        expect(await journal.show(run.runId)).toMatchObject({ status: "parked", reason: "sleep" });
        await until(async () => (await journal.claim(claim)).kind === "claimed");
        expect((await journal.claim(claim)).kind).toBe("busy");
        expect(await journal.show(run.runId)).toMatchObject({
          status: "running",
          reason: undefined,
        });
      });

      test("may be parked again by the same call, and by nobody else", async () => {
        const { claim, ...run } = await running(journal);
        const reasons: ParkReason[] = ["lock-busy", "child"];
        for (const reason of reasons) await journal.park(run, { ...forever, reason });
        expect(await journal.claim(claim)).toEqual({
          kind: "parked",
          reason: "lock-busy",
          wakeIn: Number.POSITIVE_INFINITY,
        });
        expect((await journal.show(run.runId))?.dueAt).toBeUndefined();
      });

      test("is due at once when a signal came before it was parked, and as soon as one comes", async () => {
        const { claim, ...run } = await running(journal);
        const signal = (dedupeId: string) => ({ name: "paid", dedupeId, payload: dedupeId });
        expect(await journal.signal(run.runId, signal("1"))).toBe("delivered");
        await journal.park(run, forever);
        const second = await claimed(journal, claim);
        expect(second.signals).toEqual([{ ...signal("1"), at: expect.any(Date) }]);
        await journal.park({ ...run, epoch: second.epoch }, { ...forever, signalsSeen: 1 });
        expect((await journal.claim(claim)).kind).toBe("parked");
        expect(await journal.signal(run.runId, signal("1"))).toBe("duplicate");
        expect((await journal.claim(claim)).kind).toBe("parked");
        expect(await journal.signal(run.runId, signal("2"))).toBe("delivered");
        expect(await journal.signal(run.runId, { ...signal("1"), name: "other" })).toBe(
          "delivered",
        );
        const third = await claimed(journal, claim);
        expect(third.signals.map(({ name, dedupeId }) => `${name} ${dedupeId}`)).toEqual([
          "paid 1",
          "paid 2",
          "other 1",
        ]);
      });

      test("never sleeps through a signal, however the two meet", async () => {
        const { claim, ...first } = await running(journal);
        const clients = [underTest.open(), underTest.open(), underTest.open()] as const;
        const total = 60;
        let sent = 0;
        const send = async (sender: number) => {
          for (let i = sender; i < total; i += 2) {
            await pause(Math.random() * 8);
            const signal = { name: "a", dedupeId: `${i}`, payload: "" };
            const twice = [clients[0], clients[1]].map((one) =>
              one.journal.signal(claim.runId, signal),
            );
            expect((await Promise.all(twice)).sort()).toEqual(["delivered", "duplicate"]);
            sent += 1;
          }
        };
        const receive = async () => {
          let { epoch } = first;
          for (let signalsSeen = 0; ; ) {
            await clients[2].journal.park({ ...first, epoch }, { ...forever, signalsSeen });
            if (signalsSeen === total) return;
            const before = sent;
            const next = await until(async () => {
              const answer = await clients[2].journal.claim(claim);
              // Once more than what was seen has been sent, it must not sleep.
              if (answer.kind === "parked") expect(before).toBeLessThanOrEqual(signalsSeen);
              return answer.kind === "claimed" && answer;
            });
            epoch = next.epoch;
            signalsSeen = next.signals.length;
          }
        };
        await Promise.all([send(0), send(1), receive()]);
        const shown = await journal.show(claim.runId);
        expect(shown).toMatchObject({ status: "parked", dueAt: undefined });
        expect(shown?.signals).toHaveLength(total);
        for (const client of clients) await client.close();
      }, 60_000);
    });

    test("what is due is listed, the longest due first, and carried on by one worker each", async () => {
      const workflow = newRunId();
      const clients = Array.from({ length: 3 }, () => underTest.open());
      const runs = await Promise.all(
        Array.from({ length: 12 }, () => running(journal, { workflow })),
      );
      expect(await dueOf(workflow)).toEqual([]);
      for (const [i, run] of runs.entries()) {
        await journal.park(run, { ...forever, wakeIn: i === 11 ? 60_000 : 5 * (11 - i) });
      }
      const crashed = await running(journal, { workflow, ttl: 1 });
      await pause(100);
      const due = await dueOf(workflow);
      expect([...due].sort()).toEqual(
        [crashed, ...runs.slice(0, 11)].map(({ runId }) => runId).sort(),
      );
      const dueAt = async (runId = "") => (await journal.show(runId))?.dueAt?.getTime() ?? 0;
      expect(await dueAt(due[0])).toBeLessThanOrEqual(await dueAt(due[11]));
      expect(await dueOf(workflow, 3)).toEqual(due.slice(0, 3));
      expect(await dueOf(newRunId())).toEqual([]);
      const others = [
        { workflow, version: 2 },
        { workflow: "other", version: 1 },
      ];
      expect(await journal.due({ workflows: others, limit: 9 })).toEqual([]);
      const several = [...others, { workflow, version: 1 }];
      expect(await journal.due({ workflows: several, limit: 99 })).toEqual(due);
      const work = async (client: (typeof clients)[number]) => {
        const got: string[] = [];
        for (const runId of await client.journal.due({ workflows: several, limit: 99 })) {
          const answer = await client.journal.take({ runId, owner: "worker", ttl: 20_000 });
          if (answer.kind === "claimed") got.push(runId);
          else expect(answer.kind).toBe("busy");
        }
        return got;
      };
      const carried = (await Promise.all(clients.map(work))).flat();
      expect(carried.sort()).toEqual([...due].sort());
      expect(await dueOf(workflow)).toEqual([]);
      for (const client of clients) await client.close();
    });

    describe("a cancellation", () => {
      test("makes a parked run due, and the next holder knows", async () => {
        const { claim, ...run } = await running(journal);
        await journal.park(run, forever);
        expect(await journal.cancel(run.runId)).toBe("requested");
        const next = await claimed(journal, claim);
        expect(next.cancelled).toBe(true);
        // Its holder knows, and may wait for what it undoes.
        await journal.park({ ...run, epoch: next.epoch }, forever);
        expect((await journal.claim(claim)).kind).toBe("parked");
        expect(await journal.cancel(run.runId)).toBe("requested");
        expect((await journal.claim(claim)).kind).toBe("parked");
        expect(await journal.show(run.runId)).toMatchObject({ cancelled: true });
      });

      test("of a running run is not slept through", async () => {
        const { claim, ...run } = await running(journal);
        expect(await journal.cancel(run.runId)).toBe("requested");
        await journal.park(run, forever);
        expect(await claimed(journal, claim)).toMatchObject({ cancelled: true, crashes: 0 });
      });

      test("and a signal come too late for a run that has ended, or is not there", async () => {
        const run = await running(journal);
        const signal = { name: "a", dedupeId: "1", payload: "" };
        await journal.finish(run, DONE);
        expect(await journal.cancel(run.runId)).toBe("ended");
        expect(await journal.signal(run.runId, signal)).toBe("ended");
        expect(await journal.cancel("no such run")).toBe("missing");
        expect(await journal.signal("no such run", signal)).toBe("missing");
        expect(await journal.show(run.runId)).toMatchObject({ cancelled: false, signals: [] });
      });
    });

    describe("a run that has ended", () => {
      test("says how, and the same call may end it again", async () => {
        const { claim, ...run } = await running(journal);
        await journal.append(run, record("a"));
        const ending = { ...DONE, status: "failed", value: '"why"', compensated: true } as const;
        await journal.finish(run, ending);
        await journal.finish(run, DONE);
        const { keep, ...ended } = ending;
        const answer = { kind: "ended", ending: { ...ended, at: expect.any(Date) } };
        expect(await journal.claim(claim)).toEqual(answer);
        expect(await journal.take(claim)).toEqual(answer);
        const shown = await journal.show(run.runId);
        expect(shown).toMatchObject({ status: "failed", ending: ended, dueAt: undefined });
        expect(shown?.records).toHaveLength(1);
        expect(await dueOf("order", 10_000)).not.toContain(run.runId);
      });

      test("tells its parent once, and wakes it", async () => {
        const parent = await running(journal);
        const child = await running(journal, {
          parent: { runId: parent.runId, signal: "child/pay" },
        });
        await journal.park(parent, forever);
        const ending = {
          ...DONE,
          value: '"\u0001🫖"',
          status: "failed",
          compensated: true,
        } as const;
        await journal.finish(child, ending);
        await journal.finish(child, ending);
        const next = await claimed(journal, parent.claim);
        expect(next.signals).toHaveLength(1);
        const [signal] = next.signals;
        expect(signal).toMatchObject({ name: "child/pay", dedupeId: child.runId });
        const { keep, ...told } = ending;
        expect(fromPayload(signal?.payload ?? "")).toEqual(told);
        // What it has seen does not wake it again.
        await journal.park({ ...parent, epoch: next.epoch }, { ...forever, signalsSeen: 1 });
        expect((await journal.claim(parent.claim)).kind).toBe("parked");
        expect(await journal.show(parent.runId)).toMatchObject({ version: 1, workflow: "order" });
      });

      test("may have a parent that works, has ended, or never was", async () => {
        const parents = await Promise.all([running(journal), running(journal)]);
        await journal.finish(parents[1], DONE);
        for (const { runId } of [...parents, { runId: "nobody" }]) {
          const child = await running(journal, { parent: { runId, signal: "child" } });
          await journal.finish(child, DONE);
          expect(await journal.show(child.runId)).toMatchObject({ status: "completed" });
        }
        expect(await journal.renew(parents[0], 1_000)).toEqual({ cancelled: false, signals: 1 });
        expect((await journal.show(parents[1].runId))?.signals).toEqual([]);
        expect(await journal.show("nobody")).toBeUndefined();
      });

      test("tells many at once, and each signal is counted", async () => {
        const parent = await running(journal);
        const clients = [underTest.open(), underTest.open()];
        const children = await Promise.all(
          Array.from({ length: 16 }, () =>
            running(journal, { parent: { runId: parent.runId, signal: "child" } }),
          ),
        );
        await Promise.all(
          children.flatMap((child, i) => [
            clients[i % 2]?.journal.finish(child, DONE),
            clients[(i + 1) % 2]?.journal.finish(child, DONE),
          ]),
        );
        expect(await journal.renew(parent, 1_000)).toMatchObject({ signals: 16 });
        expect((await journal.show(parent.runId))?.signals).toHaveLength(16);
        for (const client of clients) await client.close();
      });

      test("is there no more when its time is over, and its id begins another one", async () => {
        const { claim, ...run } = await running(journal);
        await journal.append(run, record("old"));
        await journal.signal(run.runId, { name: "old", dedupeId: "1", payload: "" });
        await journal.cancel(run.runId);
        await journal.finish(run, { ...DONE, keep: 1_000 });
        expect((await journal.claim(claim)).kind).toBe("ended");
        await pause(1_050);
        const signal = { name: "a", dedupeId: "1", payload: "" };
        expect(await journal.take(claim)).toEqual({ kind: "missing" });
        expect(await journal.signal(run.runId, signal)).toBe("missing");
        expect(await journal.cancel(run.runId)).toBe("missing");
        expect(await journal.show(run.runId)).toBeUndefined();
        expect((await journal.list({ limit: 10_000 })).map(({ runId }) => runId)).not.toContain(
          run.runId,
        );
        // With another input, even.
        const other = { ...claim, inputHash: HASH.replace("0", "1"), input: "new", version: 3 };
        const answers = await Promise.all([journal.claim(other), journal.claim(other)]);
        expect(answers.map(({ kind }) => kind).sort()).toEqual(["busy", "claimed"]);
        const next = mine(answers.find(({ kind }) => kind === "claimed") ?? { kind: "none" });
        const nothing = { records: [], signals: [], crashes: 0, cancelled: false };
        expect(next).toMatchObject({ ...nothing, input: "new", version: 3 });
        expect(next.epoch).not.toBe(run.epoch);
        await expectRejection(journal.append(run, record("late")), STALE);
      });

      test("is purged when its time is over, and never shares an epoch with another of its id", async () => {
        const runId = newRunId();
        const kept = await running(journal);
        await journal.finish(kept, DONE);
        const epochs: bigint[] = [];
        for (let i = 0; i < 5; i += 1) {
          const { epoch } = await claimed(journal, claimOf(runId));
          for (const stale of epochs) {
            await expectRejection(journal.append({ runId, epoch: stale }, record("late")), STALE);
          }
          epochs.push(epoch);
          await journal.append({ runId, epoch }, record("a"));
          await journal.finish({ runId, epoch }, { ...DONE, keep: 0 });
          await until(async () => {
            await journal.purge(1_000);
            return (await journal.show(runId)) === undefined;
          });
        }
        expect(new Set(epochs).size).toBe(5);
        expect(await journal.show(kept.runId)).toMatchObject({ status: "completed" });
      });
    });

    test("runs are listed, newest first, by workflow and status", async () => {
      const workflow = newRunId();
      const runs: (RunKey & { readonly claim: Claim })[] = [];
      for (let i = 0; i < 4; i += 1) {
        runs.push(await running(journal, { workflow, owner: `owner ${i}` }));
        await pause(3);
      }
      const [first, second, third] = runs.slice(0, 3) as readonly RunKey[] as [
        RunKey,
        RunKey,
        RunKey,
      ];
      await journal.park(first, { ...forever, reason: "child" });
      await journal.finish(second, { ...DONE, status: "cancelled" });
      await journal.cancel(third.runId);
      const listed = await journal.list({ workflow });
      expect(listed.map(({ runId }) => runId)).toEqual(runs.map(({ runId }) => runId).reverse());
      expect(listed.map(({ status }) => status)).toEqual([
        "running",
        "running",
        "cancelled",
        "parked",
      ]);
      expect(listed[3]).toEqual({
        ...{ runId: first.runId, workflow, version: 1, status: "parked", epoch: first.epoch },
        ...{ owner: "owner 0", reason: "child", crashes: 0, cancelled: false, dueAt: undefined },
        ...{ startedAt: expect.any(Date), changedAt: expect.any(Date) },
      });
      expect(listed[1]).toMatchObject({ cancelled: true, dueAt: expect.any(Date) });
      const ids = async (query: Parameters<Journal["list"]>[0]) =>
        (await journal.list(query)).map(({ runId }) => runId);
      expect(await ids({ workflow, status: "parked" })).toEqual([first.runId]);
      expect(await ids({ workflow, status: "running", limit: 1 })).toEqual([runs[3]?.runId]);
      expect(await ids({ workflow: "no such workflow" })).toEqual([]);
      expect((await journal.list()).length).toBeGreaterThan(3);
    });
  });
}
