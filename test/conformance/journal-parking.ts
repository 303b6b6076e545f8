import { describe, expect, test } from "vitest";
import type { ParkReason } from "../../core/journal/runs.ts";
import type { JournalFixture } from "../support/journal-under-test.ts";
import { claimed, DONE, FOREVER, running } from "../support/runs.ts";
import { pause, until } from "../support/until.ts";

/** Tests of parked and due runs, of signals and of cancellations. */
export function describeParking({ journal, underTest }: JournalFixture): void {
  describe("a parked run", () => {
    test("cannot be claimed before its wake-up, and then by one caller", async () => {
      const { claim, ...run } = await running(journal);
      await journal.park(run, { reason: "sleep", wakeIn: 600_000, signalsSeen: 0 });
      const parked = await journal.claim(claim);
      expect(parked).toEqual({
        ...{ kind: "parked", reason: "sleep" },
        ...{ wakeIn: expect.any(Number), awaitsChildren: false },
      });
      if (parked.kind === "parked") expect(parked.wakeIn).toBeLessThanOrEqual(600_000);
      expect((await journal.take(claim)).kind).toBe("parked");
      expect(await journal.show(run.runId)).toMatchObject({ status: "parked", reason: "sleep" });
      const { claim: again, ...short } = await running(journal);
      await journal.park(short, { reason: "sleep", wakeIn: 100, signalsSeen: 0 });
      await until(async () => (await journal.claim(again)).kind === "claimed");
      expect((await journal.claim(again)).kind).toBe("busy");
      expect(await journal.show(short.runId)).toMatchObject({
        status: "running",
        reason: undefined,
      });
    });

    test("accepts a repetition of its park, which changes nothing", async () => {
      const { claim, ...run } = await running(journal);
      const reasons: ParkReason[] = ["lock-busy", "child"];
      for (const reason of reasons) await journal.park(run, { ...FOREVER, reason });
      expect(await journal.claim(claim)).toEqual({
        kind: "parked",
        reason: "lock-busy",
        wakeIn: Number.POSITIVE_INFINITY,
        awaitsChildren: false,
      });
      expect((await journal.show(run.runId))?.dueAt).toBeUndefined();
    });

    test("is due at once after an unseen signal, and with each new signal", async () => {
      const { claim, ...run } = await running(journal);
      const signal = (dedupeId: string) => ({ name: "paid", dedupeId, payload: dedupeId });
      expect(await journal.signal(run.runId, signal("1"))).toBe("delivered");
      await journal.park(run, FOREVER);
      const second = await claimed(journal, claim);
      expect(second.signals).toEqual([{ number: 1, ...signal("1"), at: expect.any(Date) }]);
      await journal.park({ ...run, epoch: second.epoch }, { ...FOREVER, signalsSeen: 1 });
      expect((await journal.claim(claim)).kind).toBe("parked");
      expect(await journal.signal(run.runId, signal("1"))).toBe("duplicate");
      expect((await journal.claim(claim)).kind).toBe("parked");
      expect(await journal.signal(run.runId, signal("2"))).toBe("delivered");
      expect(await journal.signal(run.runId, { ...signal("1"), name: "other" })).toBe("delivered");
      const third = await claimed(journal, claim);
      expect(third.signals.map(({ name, dedupeId }) => `${name} ${dedupeId}`)).toEqual([
        "paid 1",
        "paid 2",
        "other 1",
      ]);
    });

    test("never sleeps through a signal, in any interleaving", async () => {
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
          await clients[2].journal.park({ ...first, epoch }, { ...FOREVER, signalsSeen });
          if (signalsSeen === total) return;
          const before = sent;
          const next = await until(async () => {
            const answer = await clients[2].journal.claim(claim);
            // A run with an unseen signal must not sleep.
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
    }, 240_000);
  });

  describe("a cancellation", () => {
    test("makes a parked run due, and is reported to the next holder", async () => {
      const { claim, ...run } = await running(journal);
      await journal.park(run, FOREVER);
      expect(await journal.cancel(run.runId)).toBe("requested");
      const next = await claimed(journal, claim);
      expect(next.cancelled).toBe(true);
      // The holder knows of the cancellation, and may park during its undos.
      await journal.park({ ...run, epoch: next.epoch }, FOREVER);
      expect((await journal.claim(claim)).kind).toBe("parked");
      expect(await journal.cancel(run.runId)).toBe("requested");
      expect((await journal.claim(claim)).kind).toBe("parked");
      expect(await journal.show(run.runId)).toMatchObject({ cancelled: true });
    });

    test("of a held run makes it due when it is parked", async () => {
      const { claim, ...run } = await running(journal);
      expect(await journal.cancel(run.runId)).toBe("requested");
      await journal.park(run, FOREVER);
      expect(await claimed(journal, claim)).toMatchObject({ cancelled: true, crashes: 0 });
    });

    test("reports, like a signal, an ended or a missing run", async () => {
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
}
