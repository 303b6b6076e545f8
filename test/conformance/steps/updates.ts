import { describe, expect, test } from "vitest";
import { z } from "zod";
import { encode } from "../../../core/steps/codec.ts";
import { TerminalError } from "../../../core/steps/index.ts";
import { flow, signalled } from "../../support/flow.ts";
import { taken } from "../../support/runs.ts";
import type { StepsHarness } from "./harness.ts";

const signals = { add: z.number().int(), close: z.null() };

/** Queries and updates of runs that are under way. */
export function describeUpdates({ newId, recordsOf, runtime, toEnd }: StepsHarness): void {
  /** Adds numbers until it is closed. */
  const counter = (effects: number[] = []) =>
    signalled(signals, async (ctx) => {
      let sum = 0;
      await ctx.publish("sum", sum);
      while (sum < 10) {
        const add = async (n: number) => {
          if (n < 0) throw new TerminalError("NEGATIVE", "only up", { data: { n } });
          return ctx.step("add", async () => {
            effects.push(n);
            return sum + n;
          });
        };
        sum = await ctx.answer("add", add).catch(() => sum);
        await ctx.publish("sum", sum);
      }
      return sum;
    });

  describe("queries", () => {
    test("a query returns the last published value, while the run waits and after its end", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const wf = counter();
      const id = newId();
      await ours.start(wf, { n: 1 }, { id });
      expect(await theirs.query(id, "sum")).toBeUndefined();
      await ours.execute(wf, { n: 1 }, { id });
      expect(await theirs.query(id, "sum")).toBe(0);
      for (const n of [1, 2, 7]) {
        await theirs.signal(id, "add", n, { dedupeId: String(n) });
        await ours.execute(wf, { n: 1 }, { id });
      }
      expect(await theirs.query(id, "sum")).toBe(10);
      expect(await theirs.query(id, "su")).toBeUndefined();
      await expect(theirs.query(newId(), "sum")).rejects.toMatchObject({ code: "UNKNOWN_RUN" });
    });

    test("names that contain one another are told apart, and a value that is too large fails the run", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) => {
        await ctx.publish("a", 1);
        await ctx.publish("a/b#2", 2);
        await ctx.publish("large", "x".repeat(2 ** 20));
      });
      const id = newId();
      const outcome = await rt.execute(wf, { n: 1 }, { id });
      expect(outcome).toMatchObject({ status: "failed", error: { code: "TOO_LARGE" } });
      expect([await rt.query(id, "a"), await rt.query(id, "a/b#2")]).toEqual([1, 2]);
    });
  });

  describe("updates", () => {
    test("an update resolves to the handler's result, once per dedupe id", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const effects: number[] = [];
      const wf = counter(effects);
      const id = newId();
      await ours.start(wf, { n: 1 }, { id });
      const running = toEnd(ours, wf, id);
      const add = (n: number, dedupeId: string) =>
        theirs.update(id, "add", n, { dedupeId, wait: "1m" });
      expect(await add(3, "a")).toEqual({ status: "answered", output: 3 });
      expect(await add(4, "b")).toEqual({ status: "answered", output: 7 });
      expect(await add(3, "a")).toEqual({ status: "answered", output: 3 });
      const refused = await add(-1, "c");
      expect(refused).toMatchObject({ status: "failed", error: { code: "NEGATIVE" } });
      expect(await add(3, "d")).toEqual({ status: "answered", output: 10 });
      expect(await running).toMatchObject({ output: 10 });
      expect(await add(4, "b")).toEqual({ status: "answered", output: 7 });
      expect(await add(1, "e")).toEqual({ status: "ended" });
      expect(effects).toEqual([3, 4, 3]);
    });

    test("an update that no process handles is pending, and is answered later", async () => {
      const rt = runtime();
      const wf = counter();
      const id = newId();
      await rt.start(wf, { n: 1 }, { id });
      const options = { dedupeId: "a", wait: 0 };
      expect(await rt.update(id, "add", 5, options)).toEqual({ status: "pending" });
      await rt.execute(wf, { n: 1 }, { id });
      expect(await rt.update(id, "add", 5, options)).toEqual({ status: "answered", output: 5 });
    });

    test("an update with the dedupe id of another payload is refused, before the answer and after the end", async () => {
      const rt = runtime();
      const wf = counter();
      const id = newId();
      await rt.start(wf, { n: 1 }, { id });
      const add = (n: number) => rt.update(id, "add", n, { dedupeId: "a", wait: 0 });
      const refused = { code: "SIGNAL_CONFLICT", message: expect.stringContaining('"add"') };
      await add(10);
      await expect(add(9)).rejects.toMatchObject(refused);
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: 10 });
      expect(await add(10)).toEqual({ status: "answered", output: 10 });
      await expect(add(9)).rejects.toMatchObject(refused);
    });

    test("a run that ends without an answer ends the wait, and an invalid update is refused", async () => {
      const rt = runtime();
      const wf = signalled(signals, async (ctx) => ctx.waitFor("close"));
      const id = newId();
      await rt.start(wf, { n: 1 }, { id });
      const invalid = rt.update(id, "add", "one", { dedupeId: "a" });
      await expect(invalid).rejects.toMatchObject({ code: "INVALID" });
      const update = rt.update(id, "add", 1, { dedupeId: "a", wait: "1m" });
      await rt.signal(id, "close", null, { dedupeId: "b" });
      await toEnd(rt, wf, id);
      expect(await update).toEqual({ status: "ended" });
    });

    test("an update that the workflow discards fails with INVALID, and a later one is answered", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const wf = counter();
      const id = newId();
      await ours.start(wf, { n: 1 }, { id });
      const bad = () => theirs.update(id, "add", "ten", { dedupeId: "a", wait: 0 });
      expect(await bad()).toEqual({ status: "pending" });
      await ours.execute(wf, { n: 1 }, { id });
      const error = { code: "INVALID", message: expect.stringContaining("signal add") };
      expect(await bad()).toMatchObject({ status: "failed", error });
      await theirs.signal(id, "add", 10, { dedupeId: "b" });
      expect(await toEnd(ours, wf, id)).toMatchObject({ output: 10 });
      expect(await bad()).toMatchObject({ status: "failed", error });
    });

    test("an update whose discarding process was lost before its answer is answered later", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const wf = counter();
      const id = newId();
      await ours.execute(wf, { n: 1 }, { id });
      const bad = () => theirs.update(id, "add", "ten", { dedupeId: "a", wait: 0 });
      expect(await bad()).toEqual({ status: "pending" });
      const { journal } = ours;
      const run = await taken(journal, id);
      const value = encode({ dedupeId: "a", error: { code: "INVALID" }, retryIn: 0 });
      const discarded = { key: "~signal/add@1", kind: "signal", outcome: "retry" } as const;
      await journal.append(run, { ...discarded, attempt: 1, value });
      await journal.park(run, { reason: "deadline", wakeIn: 0, signalsSeen: 1 });
      await ours.execute(wf, { n: 1 }, { id });
      expect(await bad()).toMatchObject({ status: "failed", error: { code: "INVALID" } });
    });

    test("an update that the workflow does not declare is refused by a runtime that knows the workflow", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const id = newId();
      await ours.start(counter(), { n: 1 }, { id });
      const unknown = ours.update(id, "sub", 1, { dedupeId: "a" });
      const message = expect.stringContaining('"sub"');
      await expect(unknown).rejects.toMatchObject({ code: "INVALID", message });
      const pending = { status: "pending" };
      expect(await theirs.update(id, "sub", 1, { dedupeId: "a", wait: 0 })).toEqual(pending);
      const missing = ours.update(newId(), "sub", 1, { dedupeId: "a" });
      await expect(missing).rejects.toMatchObject({ code: "UNKNOWN_RUN" });
    });

    test("an answer that cannot be stored fails the update, and names the path", async () => {
      const rt = runtime();
      const wf = signalled(signals, async (ctx) => {
        const answer = async () => ({ items: [() => {}] });
        return ctx.answer("close", answer).catch(({ code }) => code);
      });
      const id = newId();
      await rt.start(wf, { n: 1 }, { id });
      await rt.signal(id, "close", null, { dedupeId: "1" });
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: "INVALID" });
      const answered = await rt.update(id, "close", null, { dedupeId: "1" });
      const message = "the answer to close is not valid: at .items[0]: a function cannot be stored";
      expect(answered).toMatchObject({
        status: "failed",
        error: { code: "INVALID", message: expect.stringContaining(message) },
      });
      const payload = { items: [() => {}] };
      await expect(rt.signal(id, "any", payload, { dedupeId: "2" })).rejects.toThrow(
        "the payload of signal any is not valid: at .items[0]: a function cannot be stored",
      );
    });

    test("a replay answers no update twice, and calls no step of a handler again", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const effects: number[] = [];
      const wf = counter(effects);
      const id = newId();
      await ours.start(wf, { n: 1 }, { id });
      for (const n of [4, 6]) {
        await ours.signal(id, "add", n, { dedupeId: String(n) });
        await (n === 4 ? ours : theirs).execute(wf, { n: 1 }, { id });
      }
      expect(effects).toEqual([4, 6]);
      const answers = (await recordsOf(ours, id)).filter((key) => key.startsWith("~answer/"));
      expect(answers).toHaveLength(2);
    });

    test("answer times out as waitFor does", async () => {
      const rt = runtime({ skipPauses: true });
      const wf = signalled(signals, async (ctx) =>
        ctx.answer("add", async (n) => n, { timeout: "1h" }),
      );
      const id = newId();
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ output: { timedOut: true } });
    });
  });
}
