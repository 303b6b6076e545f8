import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Duration } from "../../../core/lock/duration.ts";
import { TerminalError } from "../../../core/steps/index.ts";
import { flow, signalled } from "../../support/flow.ts";
import { until } from "../../support/until.ts";
import type { StepsHarness } from "./harness.ts";

/** Sleeps, signals and maps. */
export function describeWaitsAndMaps({ newId, recordsOf, runtime, toEnd }: StepsHarness): void {
  describe("waits", () => {
    test("a run sleeps once, and occupies no process", async () => {
      const rt = runtime();
      let span: Duration = "1h";
      const wf = flow(async (ctx) => {
        await ctx.sleep("nap", span);
        return "rested";
      });
      const id = newId();
      const outcome = await rt.execute(wf, { n: 1 }, { id });
      expect(outcome).toMatchObject({ status: "suspended", reason: "sleep" });
      const before = await rt.journal.find(id);
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
      expect(await rt.journal.find(id)).toMatchObject({ dueAt: before?.dueAt });
      span = 20;
      expect(await toEnd(rt, wf, newId())).toMatchObject({ output: "rested" });
    });

    test("a sleeping branch lets the others go on", async () => {
      const rt = runtime();
      const done: string[] = [];
      const wf = flow(async (ctx) => {
        await Promise.all([
          ctx.sleep("long", "1h"),
          (async () => {
            for (const name of ["a", "b", "c"]) {
              await ctx.step(name, async () => {
                await sleep(2);
                done.push(name);
              });
            }
          })(),
        ]);
      });
      const outcome = await rt.execute(wf, { n: 1 });
      expect(outcome).toMatchObject({ status: "suspended", reason: "sleep" });
      expect(done).toEqual(["a", "b", "c"]);
    });

    test("waitFor returns each signal once, whether it was sent before or after the call", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const Paid = z.object({ amount: z.number() });
      const wf = flow(async (ctx) => {
        const first = await ctx.waitFor("paid", Paid);
        const second = await ctx.waitFor("paid", Paid);
        return [first.amount, second.amount];
      });
      const id = newId();
      const waiting = await ours.execute(wf, { n: 1 }, { id });
      expect(waiting).toMatchObject({ status: "suspended", reason: "signal" });
      expect((waiting as { wakeIn: number }).wakeIn).toBe(Number.POSITIVE_INFINITY);
      const send = (amount: number, dedupeId: string) =>
        theirs.signal(id, "paid", { amount }, { dedupeId });
      expect(await send(1, "a")).toBe("delivered");
      expect(await send(1, "a")).toBe("duplicate");
      expect(await ours.execute(wf, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
      expect(await send(2, "b")).toBe("delivered");
      expect(await ours.execute(wf, { n: 1 }, { id })).toMatchObject({ output: [1, 2] });
      expect(await send(3, "c")).toBe("ended");
      await expect(theirs.signal(newId(), "paid", {}, { dedupeId: "a" })).rejects.toMatchObject({
        code: "UNKNOWN_RUN",
      });
    });

    test("waitFor times out without a signal, and stays timed out when one arrives later", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) => {
        const options = { timeout: 30 };
        const answer = await ctx.waitFor("paid", z.object({ ok: z.boolean() }), options);
        await ctx.sleep("nap", 200);
        return answer;
      });
      const id = newId();
      // The store's clock decides when the wait has timed out.
      await until(async () => {
        const run = await rt.execute(wf, { n: 1 }, { id });
        return !(run.status === "suspended" && run.reason === "signal");
      });
      await rt.signal(id, "paid", { ok: true }, { dedupeId: "late" });
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: { timedOut: true } });
    });

    test("the sender of an invalid payload is refused, and nothing is delivered", async () => {
      const rt = runtime();
      const signals = { paid: z.object({ ok: z.boolean() }) };
      const wf = signalled(signals, async (ctx) => ctx.waitFor("paid"));
      const id = newId();
      await rt.start(wf, { n: 1 }, { id });
      const send = (runId: string, payload: unknown) =>
        rt.signal(runId, "paid", payload, { dedupeId: "a" });
      await expect(send(id, { ok: "yes" })).rejects.toMatchObject({
        code: "INVALID",
        data: [expect.stringContaining("ok: ")],
      });
      await expect(send(newId(), { ok: true })).rejects.toMatchObject({ code: "UNKNOWN_RUN" });
      expect(await send(id, { ok: true })).toBe("delivered");
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: { ok: true } });
      expect((await rt.journal.show(id))?.signals).toHaveLength(1);
    });

    test("a declared schema may change the payload, which is checked as it was sent", async () => {
      const rt = runtime();
      const signals = { due: z.iso.datetime().transform((text) => new Date(text)) };
      const wf = signalled(signals, async (ctx) => ctx.waitFor("due", { timeout: "1h" }));
      const id = newId();
      await rt.start(wf, { n: 1 }, { id });
      await rt.signal(id, "due", "2026-01-02T03:04:05.000Z", { dedupeId: "a" });
      const output = new Date("2026-01-02T03:04:05.000Z");
      expect(await toEnd(rt, wf, id)).toMatchObject({ output });
    });

    test("a run discards invalid payloads with a record each, and waits on", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const wf = flow(async (ctx) => [
        await ctx.waitFor("paid", z.object({ ok: z.boolean() })),
        await ctx.waitFor("paid", z.object({ ok: z.boolean() })),
      ]);
      const id = newId();
      await ours.start(wf, { n: 1 }, { id });
      const send = async (dedupeId: string, ok: unknown) =>
        theirs.signal(id, "paid", { ok }, { dedupeId });
      await send("a", "yes");
      await send("b", "no");
      const first = await ours.execute(wf, { n: 1 }, { id });
      expect(first).toMatchObject({ status: "suspended", reason: "signal" });
      const discarded = ["~signal/paid@1 retry", "~signal/paid@2 retry"];
      expect(await recordsOf(ours, id)).toEqual(discarded);
      await send("c", true);
      await theirs.execute(wf, { n: 1 }, { id });
      await send("d", 5);
      await send("e", false);
      const outcome = await ours.execute(wf, { n: 1 }, { id });
      expect(outcome).toMatchObject({ output: [{ ok: true }, { ok: false }] });
      const second = ["~signal/paid#2@1 retry", "~signal/paid#2 ok"];
      expect(await recordsOf(ours, id)).toEqual([...discarded, "~signal/paid ok", ...second]);
      const { records = [] } = (await ours.journal.show(id)) ?? {};
      expect(records[0]?.value).toContain("INVALID");
    });

    test("waitFor without a schema blocks the run unless the signal is declared", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) => (ctx as { waitFor(name: string): unknown }).waitFor("paid"));
      const outcome = await rt.execute(wf, { n: 1 });
      expect(outcome).toMatchObject({ status: "blocked", error: { code: "MISUSE" } });
      expect((outcome as { error: Error }).error.message).toContain('signal "paid" has no schema');
    });

    test("waitFor misses no signal, whenever it is sent", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const wf = flow(async (ctx) => {
        let sum = 0;
        for (let i = 0; i < 20; i += 1) sum += await ctx.waitFor("add", z.number());
        return sum;
      });
      const id = newId();
      await ours.start(wf, { n: 1 }, { id });
      const sending = (async () => {
        for (let i = 0; i < 20; i += 1) {
          await theirs.signal(id, "add", 1, { dedupeId: String(i) });
          await sleep(Math.random() * 5);
        }
      })();
      expect(await toEnd(ours, wf, id)).toMatchObject({ output: 20 });
      await sending;
    });
  });

  describe("maps", () => {
    test("a map executes a few items at a time, each once, and resumes where it was", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const done: number[] = [];
      let atOnce = 0;
      let most = 0;
      let cut = new AbortController();
      const items = Array.from({ length: 12 }, (_, i) => i);
      const wf = flow(async (ctx) =>
        ctx.step.map("items", items, { keyOf: String, concurrency: 3 }, async (i) => {
          atOnce += 1;
          most = Math.max(most, atOnce);
          await sleep(2);
          atOnce -= 1;
          done.push(i);
          if (i === 5) cut.abort();
          return i * 10;
        }),
      );
      const id = newId();
      const drain = cut.signal;
      expect((await ours.execute(wf, { n: 1 }, { id, drain })).status).toBe("suspended");
      expect(done.length).toBeLessThan(12);
      cut = new AbortController();
      const outcome = await toEnd(theirs, wf, id);
      expect(outcome).toMatchObject({ output: items.map((i) => i * 10) });
      expect(done.toSorted((a, b) => a - b)).toEqual(items);
      expect(most).toBe(3);
    });

    test("a map fails with its first failed item, or collects all results", async () => {
      const rt = runtime();
      const undone: number[] = [];
      const begun: number[] = [];
      const run = (onError: "fail-fast" | "collect") =>
        flow(async (ctx) => {
          const results = await ctx.step.map(
            "items",
            [1, 2, 3, 4],
            { keyOf: String, concurrency: 1, retry: false, onError: onError as "collect" },
            async (i) => {
              begun.push(i);
              if (i === 2) throw new TerminalError("TWO");
              return i;
            },
            async (_, { item }) => undone.push(item),
          );
          return results.map(({ status }) => status);
        });
      const fast = await toEnd(rt, run("fail-fast"), newId());
      expect(fast).toMatchObject({ status: "failed", error: { code: "TWO" } });
      expect(begun).toEqual([1, 2]);
      // The second item may have had its effect.
      expect(undone).toEqual([2, 1]);
      const collected = await toEnd(rt, run("collect"), newId());
      const [ok, no] = ["fulfilled", "rejected"];
      expect(collected).toMatchObject({ output: [ok, no, ok, ok] });
    });

    test("a map refuses items with equal keys", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) =>
        ctx.step.map("items", [1, 1], { keyOf: String }, async (i) => i),
      );
      const outcome = await rt.execute(wf, { n: 1 });
      expect(outcome).toMatchObject({ status: "blocked", error: { code: "MISUSE" } });
    });
  });
}
