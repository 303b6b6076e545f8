import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { deadlineIn } from "../../../core/lock/duration.ts";
import { RetryAfterError, TerminalError } from "../../../core/steps/index.ts";
import { flow } from "../../support/flow.ts";
import { until } from "../../support/until.ts";
import type { StepsHarness } from "./harness.ts";

/** The attempts of steps, with and without locks. */
export function describeAttempts({
  newId,
  openLocks,
  recordsOf,
  runtime,
  toEnd,
}: StepsHarness): void {
  describe("steps", () => {
    test("a step is retried after pauses, by another process as well, and its errors are recorded", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const attempts: number[] = [];
      const wf = flow(async (ctx) =>
        ctx.step("flaky", { retry: { base: 20, jitter: "none" } }, async ({ attempt }) => {
          attempts.push(attempt);
          if (attempt < 3) throw new Error("not yet");
          return attempt;
        }),
      );
      const id = newId();
      const first = await ours.execute(wf, { n: 1 }, { id });
      expect(first).toMatchObject({ status: "suspended", reason: "retry-delay" });
      expect(await toEnd(theirs, wf, id)).toMatchObject({ output: 3 });
      expect(attempts).toEqual([1, 2, 3]);
      expect(await recordsOf(ours, id)).toEqual(["flaky@1 retry", "flaky@2 retry", "flaky ok"]);
    });

    test("a step fails for good with a TerminalError, and without attempts left", async () => {
      const rt = runtime();
      const attempts: string[] = [];
      const seen: unknown[] = [];
      const wf = flow(async (ctx) => {
        for (const [name, error] of [
          ["terminal", new TerminalError("SOLD_OUT", "no more", { data: { left: 0 } })],
          ["twice", new Error("down")],
          ["once", Object.assign(new Error("not found"), { code: 5, retryable: false })],
        ] as const) {
          await ctx
            .step(name, { retry: { attempts: 2, base: 1 } }, async () => {
              attempts.push(name);
              throw error;
            })
            .catch(({ code, data, message }) => seen.push({ code, data, message }));
        }
      });
      const id = newId();
      expect((await toEnd(rt, wf, id)).status).toBe("completed");
      expect(attempts).toEqual(["terminal", "twice", "twice", "once"]);
      expect(seen.slice(-3)).toEqual([
        { code: "SOLD_OUT", data: { left: 0 }, message: 'step "terminal" failed: no more' },
        { code: "STEP_FAILED", data: undefined, message: 'step "twice" failed: down' },
        { code: "5", data: undefined, message: 'step "once" failed: not found' },
      ]);
    });

    test("a replayed step returns the same value or error, and no stack is recorded", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const seen: unknown[] = [];
      const wf = flow(async (ctx) => {
        const value = await ctx.step("value", async () => ({
          at: new Date(5),
          big: 2n ** 64n,
          none: undefined,
          map: new Map([["a", 1]]),
        }));
        const error = await ctx
          .step("error", { retry: false }, async () => {
            throw Object.assign(new RangeError("too far"), { code: "FAR" });
          })
          .catch(({ name, code, message, step }) => ({ name, code, message, step }));
        seen.push({ value, error });
        await ctx.waitFor("go", z.unknown());
      });
      const id = newId();
      await ours.execute(wf, { n: 1 }, { id });
      await ours.signal(id, "go", 1, { dedupeId: "1" });
      await toEnd(theirs, wf, id);
      expect(seen).toHaveLength(2);
      expect(seen[1]).toEqual(seen[0]);
      expect(seen[0]).toMatchObject({ value: { big: 2n ** 64n, at: new Date(5) } });
      const { records = [] } = (await ours.journal.show(id)) ?? {};
      expect(records.some(({ value = "" }) => value.includes("steps.ts"))).toBe(false);
    });

    test("a step is retried after the pause of its RetryAfterError", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) =>
        ctx.step("later", async ({ attempt }) => {
          if (attempt === 1) throw new RetryAfterError("come back", "1h");
          return attempt;
        }),
      );
      const outcome = await rt.execute(wf, { n: 1 });
      expect(outcome).toMatchObject({ status: "suspended", reason: "retry-delay" });
      expect((outcome as { wakeIn: number }).wakeIn).toBeGreaterThan(3_500_000);
    });

    test("an attempt that times out has failed, and its late result does not count", async () => {
      const rt = runtime();
      const { promise, resolve } = Promise.withResolvers<void>();
      const aborted: boolean[] = [];
      const wf = flow(async (ctx) =>
        ctx.step("slow", { timeout: 30, retry: { attempts: 2, base: 1 } }, async (scope) => {
          if (scope.attempt === 2) return "second";
          await promise;
          aborted.push(scope.signal.aborted);
          return "first";
        }),
      );
      const id = newId();
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: "second" });
      resolve();
      await until(() => aborted.length === 1);
      expect(aborted).toEqual([true]);
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ output: "second" });
    });

    test("a step has the same idempotency key in each attempt, and no other step has this key", async () => {
      const rt = runtime();
      const keys: string[] = [];
      const wf = flow(async (ctx) => {
        for (let i = 0; i < 2; i += 1) {
          await ctx.step("pay", { retry: { base: 1 } }, async ({ idempotencyKey, attempt }) => {
            keys.push(idempotencyKey);
            if (attempt === 1) throw new Error("again");
          });
        }
      });
      const id = newId();
      await toEnd(rt, wf, id);
      expect(keys).toEqual([`${id}/pay`, `${id}/pay`, `${id}/pay#2`, `${id}/pay#2`]);
    });

    test("an interrupted at-most-once step is not started again, and its undo is called", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      let begun = 0;
      const undone: unknown[] = [];
      const never = new Promise<never>(() => {});
      const wf = flow(async (ctx) => {
        await ctx.step(
          "charge",
          { semantics: "at-most-once" },
          async () => {
            begun += 1;
            await never;
          },
          async (result) => undone.push(result),
        );
      });
      const id = newId();
      const gone = new AbortController();
      const executing = ours.execute(wf, { n: 1 }, { id, signal: gone.signal });
      await until(() => begun === 1);
      gone.abort();
      await executing;
      const outcome = await toEnd(theirs, wf, id);
      expect(outcome).toMatchObject({ status: "failed", error: { code: "STEP_INTERRUPTED" } });
      expect(begun).toBe(1);
      expect(undone).toEqual([undefined]);
    });

    test("a step is not started when less of the invocation is left than its budget", async () => {
      const rt = runtime();
      const begun: string[] = [];
      const wf = flow(async (ctx) => {
        await ctx.step("quick", async () => begun.push("quick"));
        await ctx.step("long", { budget: "10m" }, async () => begun.push("long"));
      });
      const id = newId();
      const outcome = await rt.execute(wf, { n: 1 }, { id, deadline: deadlineIn(60_000) });
      expect(outcome).toMatchObject({ status: "suspended", reason: "deadline", wakeIn: 0 });
      expect(begun).toEqual(["quick"]);
      expect((await rt.execute(wf, { n: 1 }, { id })).status).toBe("completed");
      expect(begun).toEqual(["quick", "long"]);
    });

    test("a step that the end of the invocation aborts has not failed", async () => {
      const rt = runtime();
      const attempts: number[] = [];
      const wf = flow(async (ctx) =>
        ctx.step("slow", { retry: false }, async ({ attempt, signal }) => {
          attempts.push(attempt);
          if (attempts.length > 1) return "done";
          return new Promise<string>((_, reject) => {
            signal.addEventListener("abort", () => reject(new Error("cut off")));
          });
        }),
      );
      const id = newId();
      // On a busy machine, the first invocation may end before the step begins.
      for (let span = 1_000; attempts.length === 0; span *= 2) {
        const outcome = await rt.execute(wf, { n: 1 }, { id, deadline: deadlineIn(span) });
        expect(["suspended", "busy"]).toContain(outcome.status);
      }
      expect(await rt.journal.find(id)).toMatchObject({ status: "parked", reason: "deadline" });
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ output: "done" });
      expect(attempts).toEqual([1, 1]);
    });

    test("a cancellation after the end of the invocation is unclear about a step that it aborted", async () => {
      const rt = runtime();
      let hasBegun = false;
      const wf = flow(async (ctx) =>
        ctx.step("slow", async ({ signal }) => {
          hasBegun = true;
          await new Promise<void>((_, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason));
          });
        }),
      );
      const id = newId();
      const stop = new AbortController();
      const executing = rt.execute(wf, { n: 1 }, { id, signal: stop.signal });
      await until(() => hasBegun);
      stop.abort();
      expect(await executing).toMatchObject({ status: "suspended", reason: "deadline" });
      await rt.cancel(id);
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ compensated: "unclear" });
    });

    test("a drained run finishes its step, and starts no other one", async () => {
      const rt = runtime();
      const drain = new AbortController();
      const done: string[] = [];
      const wf = flow(async (ctx) => {
        await ctx.step("first", async () => {
          drain.abort();
          await sleep(20);
          done.push("first");
        });
        await ctx.step("second", async () => done.push("second"));
      });
      const id = newId();
      const outcome = await rt.execute(wf, { n: 1 }, { id, drain: drain.signal });
      expect(outcome).toMatchObject({ status: "suspended", reason: "deadline", wakeIn: 0 });
      expect(done).toEqual(["first"]);
      expect((await rt.execute(wf, { n: 1 }, { id })).status).toBe("completed");
    });

    test("a step with the key of another step blocks the run, and a result that is too large fails it", async () => {
      const rt = runtime();
      let times = 0;
      const twice = flow(async (ctx) => {
        for (let i = 0; i < 2; i += 1) await ctx.step("a", { key: "k" }, async () => ++times);
      });
      const same = await rt.execute(twice, { n: 1 });
      expect(same).toMatchObject({ status: "blocked", error: { code: "MISUSE" } });
      expect(times).toBe(1);
      const huge = flow(async (ctx) => ctx.step("a", async () => "x".repeat(2 ** 24)));
      const large = await rt.execute(huge, { n: 1 });
      expect(large).toMatchObject({ status: "failed", error: { code: "TOO_LARGE" } });
      const output = await rt.execute(
        flow(async () => "x".repeat(2 ** 20)),
        { n: 1 },
      );
      expect(output).toMatchObject({ status: "failed", error: { code: "TOO_LARGE" } });
    });

    test("a step validates its result before the result is recorded", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) =>
        ctx.step("typed", { output: z.number() as never }, async () => "a text"),
      );
      const outcome = await rt.execute(wf, { n: 1 });
      expect(outcome).toMatchObject({ status: "failed", error: { code: "INVALID" } });
    });
  });

  describe("locked steps", () => {
    test("a locked step has a rising fence, and holds no lock afterwards", async () => {
      const rt = runtime();
      const name = newId();
      const fences: string[] = [];
      const wf = flow(async (ctx) => {
        for (let i = 0; i < 3; i += 1) {
          await ctx.step("guarded", { lock: name }, async ({ fence, lock }) => {
            lock.assertHeld();
            fences.push(fence.toString());
          });
          expect((await openLocks().inspect(name)).holder).toBeUndefined();
        }
      });
      expect((await rt.execute(wf, { n: 1 })).status).toBe("completed");
      expect(fences).toHaveLength(3);
      expect([...fences].sort()).toEqual(fences);
      expect(new Set(fences).size).toBe(3);
    });

    test("a busy lock parks the run, and is no failed attempt", async () => {
      const rt = runtime();
      const name = newId();
      const other = openLocks();
      const lock = await other.lock(name, { ttl: 60_000, wait: 60_000 });
      const wf = flow(async (ctx) => {
        const lock = { names: name, onBusy: "suspend" as const };
        return ctx.step("guarded", { lock, retry: false }, async ({ attempt }) => attempt);
      });
      const id = newId();
      const outcome = await rt.execute(wf, { n: 1 }, { id });
      expect(outcome).toMatchObject({ status: "suspended", reason: "lock-busy" });
      await lock.unlock();
      await other.close();
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: 1 });
      expect(await recordsOf(rt, id)).toEqual(["guarded ok"]);
    });

    test('a locked step with onBusy "fail" fails when the lock is busy', async () => {
      const rt = runtime();
      const name = newId();
      const other = openLocks();
      const lock = await other.lock(name, { ttl: 60_000, wait: 60_000 });
      const wf = flow(async (ctx) => {
        const lock = { names: name, wait: 200, onBusy: "fail" as const };
        return ctx.step("guarded", { lock }, async () => 1);
      });
      // A store that does not answer within the wait is no busy lock: the step is retried.
      const outcome = await toEnd(rt, wf, newId());
      expect(outcome).toMatchObject({ status: "failed", error: { code: "LOCK_TIMEOUT" } });
      await lock.unlock();
      await other.close();
    });

    test("a step takes several locks at once, so that opposite orders do not block each other", async () => {
      const clients = [runtime(), runtime()];
      const names = [newId(), newId()];
      const wf = flow(async (ctx, { n }) => {
        const lock = n === 0 ? names : names.toReversed();
        for (let i = 0; i < 5; i += 1) {
          await ctx.step("both", { lock }, async ({ fences }) => {
            expect([...fences.keys()].sort()).toEqual(names.toSorted());
          });
        }
      });
      const outcomes = await Promise.all(clients.map((rt, n) => rt.run(wf, { n })));
      for (const { status } of outcomes) expect(status).toBe("completed");
    });
  });
}
