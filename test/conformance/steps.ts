import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import type { Journal } from "../../core/journal/journal.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { deadlineIn } from "../../core/lock/time.ts";
import {
  type AnyWorkflow,
  createRuntime,
  RetryAfterError,
  type RunOutcome,
  type Runtime,
  type RuntimeOptions,
  TerminalError,
  type WorkflowContext,
  type WorkflowDefinition,
  workflow,
} from "../../core/steps/index.ts";
import { until } from "../support/until.ts";

/** A journal and locks, as the suite takes them. */
export interface StepsUnderTest {
  /** Other clients of the same journal and the same locks. */
  open(): { readonly journal: Journal; readonly locks: LockStore };
  close(): Promise<void>;
}

type Body = (ctx: WorkflowContext, input: { n: number }) => Promise<unknown>;

const Input = z.object({ n: z.number() });
let count = 0;

/** A workflow that no other test has. */
export function flow(body: Body, more: Partial<WorkflowDefinition<typeof Input>> = {}) {
  count += 1;
  return workflow(
    { name: `flow-${process.pid}-${count}`, version: 1, input: Input, ...more },
    body,
  );
}

/** What every journal owes to a workflow. */
export function describeSteps(name: string, open: () => Promise<StepsUnderTest>): void {
  describe.concurrent(`steps on ${name}`, () => {
    let under: StepsUnderTest;
    const closing: (() => Promise<void>)[] = [];

    beforeAll(async () => {
      under = await open();
    });

    afterAll(async () => {
      for (const close of closing) await close();
      await under.close();
    });

    const runtime = (options: Partial<RuntimeOptions> = {}): Runtime => {
      const { journal, locks } = under.open();
      closing.push(async () => {
        await locks.close();
        await journal.close();
      });
      return createRuntime({ journal, locks, inlineWait: 5, ...options });
    };

    /** Drives until the run has ended. */
    const toEnd = async (rt: Runtime, wf: AnyWorkflow, id: string) => {
      for (;;) {
        const outcome = await rt.drive(wf as never, { n: 1 } as never, { id });
        if (outcome.status === "completed" || outcome.status === "failed") return outcome;
        const wait = outcome.status === "busy" ? outcome.retryIn : outcome.wakeIn;
        await sleep(Math.min(wait, 200));
      }
    };
    const newId = () => `run-${crypto.randomUUID()}`;
    const recordsOf = async (rt: Runtime, id: string) =>
      ((await rt.journal.show(id))?.records ?? []).map(({ key, outcome }) => `${key} ${outcome}`);

    describe("a run", () => {
      test("answers with its output, and with the same one when it is asked for again", async () => {
        const rt = runtime();
        let times = 0;
        const wf = flow(async (ctx, { n }) => ctx.step("a", async () => n + ++times));
        const id = newId();
        const first = await rt.drive(wf, { n: 1 }, { id });
        expect(first).toEqual({ runId: id, status: "completed", output: 2 });
        expect(await rt.drive(wf, { n: 1 }, { id })).toEqual(first);
        expect(times).toBe(1);
      });

      test("is known by the workflow's own id, and refused for another input", async () => {
        const rt = runtime();
        const prefix = newId();
        const wf = flow(async () => "done", { id: () => prefix });
        expect(await rt.drive(wf, { n: 1 })).toMatchObject({ runId: prefix, output: "done" });
        await expect(rt.drive(wf, { n: 2 })).rejects.toMatchObject({ code: "INPUT_CONFLICT" });
        const kind = flow(async () => "other", { id: () => prefix });
        await expect(rt.drive(kind, { n: 1 })).rejects.toMatchObject({ code: "INPUT_CONFLICT" });
      });

      test("may answer with the run that is there, or look at a part of the input only", async () => {
        const rt = runtime();
        const [a, b] = [newId(), newId()];
        const existing = flow(async (_, { n }) => n, {
          id: () => a,
          onConflict: "return-existing",
        });
        await rt.drive(existing, { n: 1 });
        expect(await rt.drive(existing, { n: 2 })).toMatchObject({ output: 1 });
        const partly = flow(async (_, { n }) => n, { id: () => b, fingerprint: () => "same" });
        await rt.drive(partly, { n: 1 });
        expect(await rt.drive(partly, { n: 2 })).toMatchObject({ output: 1 });
      });

      test("refuses bad input before anything is written", async () => {
        const rt = runtime();
        const wf = flow(async () => 1);
        const bad = { n: "one" } as never;
        const id = newId();
        await expect(rt.drive(wf, bad, { id })).rejects.toMatchObject({ code: "INVALID" });
        await expect(rt.drive(wf, { n: 1 }, { id: "" })).rejects.toThrow("run id");
        await expect(rt.drive(wf, { n: 1 }, { id: "x".repeat(256) })).rejects.toThrow("255");
        expect(await rt.journal.show(id)).toBeUndefined();
      });

      test("is busy while somebody carries it, and none of its steps is done twice", async () => {
        const [ours, theirs] = [runtime(), runtime()];
        const { promise, resolve } = Promise.withResolvers<void>();
        let times = 0;
        const wf = flow(async (ctx) =>
          ctx.step("slow", async () => {
            times += 1;
            await promise;
          }),
        );
        const id = newId();
        const driving = ours.drive(wf, { n: 1 }, { id });
        await until(() => times === 1);
        const others = await Promise.all(
          [1, 2, 3, 4].map(() => theirs.drive(wf, { n: 1 }, { id })),
        );
        for (const outcome of others) expect(outcome.status).toBe("busy");
        resolve();
        expect(await driving).toMatchObject({ status: "completed" });
        expect(times).toBe(1);
      });

      test("is claimed once by twenty at the same time", async () => {
        const clients = [runtime(), runtime()];
        let times = 0;
        const wf = flow(async (ctx) => ctx.step("once", async () => ++times));
        const id = newId();
        const all = Array.from({ length: 20 }, (_, i) =>
          (clients[i % 2] as Runtime).drive(wf, { n: 1 }, { id }),
        );
        const outcomes = await Promise.all(all);
        expect(outcomes.some(({ status }) => status === "completed")).toBe(true);
        expect(times).toBe(1);
      });

      test("is not begun where no time is left", async () => {
        const rt = runtime();
        const id = newId();
        const wf = flow(async () => 1);
        const outcome = await rt.drive(wf, { n: 1 }, { id, deadline: deadlineIn(0) });
        expect(outcome.status).toBe("busy");
        expect(await rt.journal.show(id)).toBeUndefined();
      });

      test("is begun for others by start, and carried by whoever resumes it", async () => {
        const [ours, theirs] = [runtime(), runtime()];
        const wf = flow(async (ctx) => ctx.step("a", async () => "b"));
        const id = newId();
        expect(await ours.start(wf, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
        await expect(theirs.resume(id)).rejects.toMatchObject({ code: "UNKNOWN_WORKFLOW" });
        const knowing = runtime({ workflows: [wf] });
        expect(await knowing.resume(id)).toMatchObject({ status: "completed", output: "b" });
        await expect(knowing.resume(newId())).rejects.toMatchObject({ code: "UNKNOWN_RUN" });
      });

      test("goes on with the version that it was begun with", async () => {
        const rt = runtime();
        const name = newId();
        const make = (version: number) =>
          workflow({ name, version, input: Input }, async (ctx) => {
            await ctx.sleep("nap", 200);
            return version;
          });
        const id = newId();
        await rt.drive(make(1), { n: 1 }, { id });
        const newer = make(2);
        await sleep(210);
        expect(await rt.drive(newer, { n: 1 }, { id })).toMatchObject({ output: 1 });
        const stranger = runtime();
        const old = newId();
        await rt.drive(
          flow(async (ctx) => ctx.sleep("nap", 200)),
          { n: 1 },
          { id: old },
        );
        await sleep(210);
        await expect(stranger.resume(old)).rejects.toMatchObject({ code: "UNKNOWN_WORKFLOW" });
      });

      test("that process after process is lost over is given up", async () => {
        const rt = runtime({ lease: 100 });
        const wf = flow(async () => 1, { maxCrashes: 2 });
        const id = newId();
        const { journal } = rt;
        const hash = "0".repeat(64);
        const claim = { runId: id, owner: "gone", ttl: 30, workflow: wf.name, version: 1 };
        for (let crash = 0; crash < 3; crash += 1) {
          await journal.claim({ ...claim, input: '{"json":{"n":1}}', inputHash: hash });
          await sleep(60);
        }
        const known = runtime({ workflows: [wf] });
        const outcome = await known.resume(id);
        expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_POISONED" } });
      });
    });

    describe("a step", () => {
      test("is tried again with pauses, in another process if need be, and its errors are kept", async () => {
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
        const first = await ours.drive(wf, { n: 1 }, { id });
        expect(first).toMatchObject({ status: "suspended", reason: "retry-delay" });
        expect(await toEnd(theirs, wf, id)).toMatchObject({ output: 3 });
        expect(attempts).toEqual([1, 2, 3]);
        expect(await recordsOf(ours, id)).toEqual(["flaky@1 retry", "flaky@2 retry", "flaky ok"]);
      });

      test("fails for good when it says so, or has no attempts left", async () => {
        const rt = runtime();
        const attempts: string[] = [];
        const seen: unknown[] = [];
        const wf = flow(async (ctx) => {
          for (const [name, error] of [
            ["terminal", new TerminalError("SOLD_OUT", "no more", { data: { left: 0 } })],
            ["twice", new Error("down")],
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
        expect(attempts).toEqual(["terminal", "twice", "twice"]);
        expect(seen.slice(-2)).toEqual([
          { code: "SOLD_OUT", data: { left: 0 }, message: 'step "terminal" failed: no more' },
          { code: "STEP_FAILED", data: undefined, message: 'step "twice" failed: down' },
        ]);
      });

      test("looks the same to the workflow when it is replayed, and keeps no stack", async () => {
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
          await ctx.sleep("nap", 200);
        });
        const id = newId();
        await ours.drive(wf, { n: 1 }, { id });
        await sleep(210);
        await toEnd(theirs, wf, id);
        expect(seen).toHaveLength(2);
        expect(seen[1]).toEqual(seen[0]);
        expect(seen[0]).toMatchObject({ value: { big: 2n ** 64n, at: new Date(5) } });
        const { records = [] } = (await ours.journal.show(id)) ?? {};
        expect(records.some(({ value = "" }) => value.includes("steps.ts"))).toBe(false);
      });

      test("waits for as long as its error asks for", async () => {
        const rt = runtime();
        const wf = flow(async (ctx) =>
          ctx.step("later", async ({ attempt }) => {
            if (attempt === 1) throw new RetryAfterError("come back", "1h");
            return attempt;
          }),
        );
        const outcome = await rt.drive(wf, { n: 1 });
        expect(outcome).toMatchObject({ status: "suspended", reason: "retry-delay" });
        expect((outcome as { wakeIn: number }).wakeIn).toBeGreaterThan(3_500_000);
      });

      test("that takes too long fails that attempt, and its late answer does not count", async () => {
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
        expect(await rt.drive(wf, { n: 1 }, { id })).toMatchObject({ output: "second" });
      });

      test("has the same idempotency key in every attempt, and no other has it", async () => {
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

      test("at most once is not begun again by anybody, and its undo is called", async () => {
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
        const driving = ours.drive(wf, { n: 1 }, { id, signal: gone.signal });
        await until(() => begun === 1);
        gone.abort();
        await driving;
        const outcome = await toEnd(theirs, wf, id);
        expect(outcome).toMatchObject({ status: "failed", error: { code: "STEP_INTERRUPTED" } });
        expect(begun).toBe(1);
        expect(undone).toEqual([undefined]);
      });

      test("is not begun when less of the invocation is left than it needs", async () => {
        const rt = runtime();
        const begun: string[] = [];
        const wf = flow(async (ctx) => {
          await ctx.step("quick", async () => begun.push("quick"));
          await ctx.step("long", { budget: "10m" }, async () => begun.push("long"));
        });
        const id = newId();
        const outcome = await rt.drive(wf, { n: 1 }, { id, deadline: deadlineIn(60_000) });
        expect(outcome).toMatchObject({ status: "suspended", reason: "deadline", wakeIn: 0 });
        expect(begun).toEqual(["quick"]);
        expect((await rt.drive(wf, { n: 1 }, { id })).status).toBe("completed");
        expect(begun).toEqual(["quick", "long"]);
      });

      test("is let go of when the invocation ends, and that is no failed attempt", async () => {
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
        const outcome = await rt.drive(wf, { n: 1 }, { id, deadline: deadlineIn(1_000) });
        expect(outcome).toMatchObject({ status: "suspended", reason: "deadline" });
        expect(await rt.drive(wf, { n: 1 }, { id })).toMatchObject({ output: "done" });
        expect(attempts).toEqual([1, 1]);
      });

      test("is the last one when the run is drained", async () => {
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
        const outcome = await rt.drive(wf, { n: 1 }, { id, drain: drain.signal });
        expect(outcome).toMatchObject({ status: "suspended", reason: "deadline", wakeIn: 0 });
        expect(done).toEqual(["first"]);
        expect((await rt.drive(wf, { n: 1 }, { id })).status).toBe("completed");
      });

      test("of a key that another one has, or with a result that is too large, fails", async () => {
        const rt = runtime();
        let times = 0;
        const twice = flow(async (ctx) => {
          for (let i = 0; i < 2; i += 1) await ctx.step("a", { key: "k" }, async () => ++times);
        });
        const same = await rt.drive(twice, { n: 1 });
        expect(same).toMatchObject({ status: "failed", error: { name: "RangeError" } });
        expect(times).toBe(1);
        const huge = flow(async (ctx) => ctx.step("a", async () => "x".repeat(2 ** 20)));
        const large = await rt.drive(huge, { n: 1 });
        expect(large).toMatchObject({ status: "failed", error: { code: "TOO_LARGE" } });
        const output = await rt.drive(
          flow(async () => "x".repeat(2 ** 20)),
          { n: 1 },
        );
        expect(output).toMatchObject({ status: "failed", error: { code: "TOO_LARGE" } });
      });

      test("checks its result before it is written", async () => {
        const rt = runtime();
        const wf = flow(async (ctx) =>
          ctx.step("typed", { output: z.number() as never }, async () => "a text"),
        );
        const outcome = await rt.drive(wf, { n: 1 });
        expect(outcome).toMatchObject({ status: "failed", error: { code: "INVALID" } });
      });
    });

    describe("a locked step", () => {
      test("has a fence that rises, and holds no lock afterwards", async () => {
        const rt = runtime();
        const name = newId();
        const fences: string[] = [];
        const wf = flow(async (ctx) => {
          for (let i = 0; i < 3; i += 1) {
            await ctx.step("guarded", { lock: name }, async ({ fence, lock }) => {
              lock.assertHeld();
              fences.push(fence.toString());
            });
            expect((await under.open().locks.inspect(name)).holder).toBeUndefined();
          }
        });
        expect((await rt.drive(wf, { n: 1 })).status).toBe("completed");
        expect(fences).toHaveLength(3);
        expect([...fences].sort()).toEqual(fences);
        expect(new Set(fences).size).toBe(3);
      });

      test("parks the run while others have the lock, and that is no failed attempt", async () => {
        const rt = runtime();
        const name = newId();
        const other = under.open().locks;
        const lock = await other.lock(name, { ttl: 10_000, wait: 0 });
        const wf = flow(async (ctx) => {
          const lock = { names: name, onBusy: "suspend" as const };
          return ctx.step("guarded", { lock, retry: false }, async ({ attempt }) => attempt);
        });
        const id = newId();
        const outcome = await rt.drive(wf, { n: 1 }, { id });
        expect(outcome).toMatchObject({ status: "suspended", reason: "lock-busy" });
        await lock.unlock();
        await other.close();
        expect(await toEnd(rt, wf, id)).toMatchObject({ output: 1 });
        expect(await recordsOf(rt, id)).toEqual(["guarded ok"]);
      });

      test("fails where it is told not to wait", async () => {
        const rt = runtime();
        const name = newId();
        const other = under.open().locks;
        const lock = await other.lock(name, { ttl: 10_000, wait: 0 });
        const wf = flow(async (ctx) => {
          const lock = { names: name, wait: 20, onBusy: "fail" as const };
          return ctx.step("guarded", { lock }, async () => 1);
        });
        const outcome = await rt.drive(wf, { n: 1 });
        expect(outcome).toMatchObject({ status: "failed", error: { code: "LOCK_TIMEOUT" } });
        await lock.unlock();
        await other.close();
      });

      test("takes several locks at once, so that opposite orders do not wait for each other", async () => {
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

    describe("a replay", () => {
      test.each([
        ["another step", ["a", "b"], ["a", "x"], '"b" was expected, and x came'],
        ["one step less", ["a", "b"], ["a"], '"b" was expected, and the end came'],
        ["another order", ["a", "b"], ["b", "a"], undefined],
      ])("of %s", async (_, before, after, problem) => {
        const rt = runtime();
        let names = before;
        const done: string[] = [];
        const wf = flow(async (ctx) => {
          for (const name of names) await ctx.step(name, async () => done.push(name));
          if (names === before) await ctx.sleep("nap", 200);
        });
        const id = newId();
        await rt.drive(wf, { n: 1 }, { id });
        names = after;
        await sleep(210);
        const outcome = await toEnd(rt, wf, id);
        expect(outcome).toMatchObject({ status: "failed", error: { code: "NON_DETERMINISM" } });
        if (problem) expect((outcome as { error: Error }).error.message).toContain(problem);
        expect(done).toEqual(before);
      });

      test("of a step with other arguments, or of another kind, ends the run", async () => {
        for (const change of ["args", "kind"]) {
          const rt = runtime();
          let changed = false;
          const wf = flow(async (ctx) => {
            const args = { sku: changed && change === "args" ? "b" : "a", quantity: 1 };
            if (changed && change === "kind") await ctx.sleep("reserve", 1);
            else await ctx.step("reserve", { args }, async () => {});
            await ctx.sleep("nap", 200);
          });
          const id = newId();
          await rt.drive(wf, { n: 1 }, { id });
          changed = true;
          await sleep(210);
          const outcome = await toEnd(rt, wf, id);
          expect(outcome).toMatchObject({ status: "failed", error: { code: "NON_DETERMINISM" } });
        }
      });

      test("of branches that end in another order is the same run", async () => {
        const [ours, theirs] = [runtime(), runtime()];
        const branch = async (ctx: WorkflowContext, name: string, millis: number) => {
          await ctx.step(`${name}1`, () => sleep(millis));
          await ctx.step(`${name}2`, () => sleep(millis));
          await ctx.sleep(`${name}3`, 20);
          return ctx.step(`${name}4`, async () => name);
        };
        const wf = flow(async (ctx) => Promise.all([branch(ctx, "a", 30), branch(ctx, "b", 5)]));
        const id = newId();
        const first = await ours.drive(wf, { n: 1 }, { id });
        expect(first).toMatchObject({ status: "suspended", reason: "sleep" });
        expect(await toEnd(theirs, wf, id)).toMatchObject({ output: ["a", "b"] });
      });

      test("of a race has the same winner", async () => {
        const [ours, theirs] = [runtime(), runtime()];
        const won: unknown[] = [];
        const wf = flow(async (ctx) => {
          const steps = [600, 1, 300].map((millis, i) =>
            ctx.step(`runner${i}`, async () => {
              await sleep(millis);
              return i;
            }),
          );
          const late = ctx.sleep("late", "10s").then(() => "late");
          won.push(await Promise.race([...steps, late]));
          await Promise.all(steps);
          await ctx.sleep("nap", 60);
          return won.at(-1);
        });
        const id = newId();
        await ours.drive(wf, { n: 1 }, { id });
        expect(await toEnd(theirs, wf, id)).toMatchObject({ output: 1 });
        expect(new Set(won)).toEqual(new Set([1]));
      });

      test("has the same time, the same chance and the same ids", async () => {
        const rt = runtime();
        const seen: unknown[] = [];
        const wf = flow(async (ctx) => {
          seen.push([await ctx.now(), await ctx.random(), await ctx.uuid(), await ctx.uuid()]);
          await ctx.sleep("nap", 200);
        });
        await toEnd(rt, wf, newId());
        expect(seen.length).toBeGreaterThan(1);
        expect(seen[1]).toEqual(seen[0]);
        const [, , first, second] = seen[0] as string[];
        expect(first).not.toBe(second);
      });

      test("takes a change of code on where the run had not got to it", async () => {
        const rt = runtime();
        let isNew = false;
        const wf = flow(async (ctx) => {
          await ctx.step("a", async () => {});
          const patched = isNew && (await ctx.patched("b-first"));
          if (patched) await ctx.step("b", async () => {});
          await ctx.sleep("nap", 200);
          return patched;
        });
        const old = newId();
        await rt.drive(wf, { n: 1 }, { id: old });
        isNew = true;
        await sleep(210);
        expect(await toEnd(rt, wf, old)).toMatchObject({ output: false });
        expect(await toEnd(rt, wf, newId())).toMatchObject({ output: true });
      });
    });

    describe("waiting", () => {
      test("sleeps without a process, and once", async () => {
        const rt = runtime();
        const wf = flow(async (ctx) => {
          await ctx.sleep("nap", 1_000);
          return "rested";
        });
        const id = newId();
        const outcome = await rt.drive(wf, { n: 1 }, { id });
        expect(outcome).toMatchObject({ status: "suspended", reason: "sleep" });
        expect(await rt.drive(wf, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
        expect(await toEnd(rt, wf, id)).toMatchObject({ output: "rested" });
      });

      test("for one branch lets the others go on", async () => {
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
        const outcome = await rt.drive(wf, { n: 1 });
        expect(outcome).toMatchObject({ status: "suspended", reason: "sleep" });
        expect(done).toEqual(["a", "b", "c"]);
      });

      test("for a signal ends when it comes, whenever that is, and each is had once", async () => {
        const [ours, theirs] = [runtime(), runtime()];
        const Paid = z.object({ amount: z.number() });
        const wf = flow(async (ctx) => {
          const first = await ctx.waitFor("paid", Paid);
          const second = await ctx.waitFor("paid", Paid);
          return [first.amount, second.amount];
        });
        const id = newId();
        const waiting = await ours.drive(wf, { n: 1 }, { id });
        expect(waiting).toMatchObject({ status: "suspended", reason: "signal" });
        expect((waiting as { wakeIn: number }).wakeIn).toBe(Number.POSITIVE_INFINITY);
        const send = (amount: number, dedupeId: string) =>
          theirs.signal(id, "paid", { amount }, { dedupeId });
        expect(await send(1, "a")).toBe("delivered");
        expect(await send(1, "a")).toBe("duplicate");
        expect(await ours.drive(wf, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
        expect(await send(2, "b")).toBe("delivered");
        expect(await ours.drive(wf, { n: 1 }, { id })).toMatchObject({ output: [1, 2] });
        expect(await send(3, "c")).toBe("ended");
        await expect(theirs.signal(newId(), "paid", {}, { dedupeId: "a" })).rejects.toMatchObject({
          code: "UNKNOWN_RUN",
        });
      });

      test("for a signal ends in time without one, and says so for good", async () => {
        const rt = runtime();
        const wf = flow(async (ctx) => {
          const options = { timeout: 30 };
          const answer = await ctx.waitFor("paid", z.object({ ok: z.boolean() }), options);
          await ctx.sleep("nap", 200);
          return answer;
        });
        const id = newId();
        await rt.drive(wf, { n: 1 }, { id });
        await sleep(50);
        await rt.drive(wf, { n: 1 }, { id });
        await rt.signal(id, "paid", { ok: true }, { dedupeId: "late" });
        expect(await toEnd(rt, wf, id)).toMatchObject({ output: { timedOut: true } });
      });

      test("for a signal fails where its payload is not as it should be", async () => {
        const rt = runtime();
        const wf = flow(async (ctx) => ctx.waitFor("paid", z.object({ ok: z.boolean() })));
        const id = newId();
        await rt.start(wf, { n: 1 }, { id });
        await rt.signal(id, "paid", { ok: "yes" }, { dedupeId: "a" });
        const outcome = await rt.drive(wf, { n: 1 }, { id });
        expect(outcome).toMatchObject({ status: "failed", error: { code: "INVALID" } });
      });

      test("misses no signal that comes at any moment", async () => {
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

    describe("many", () => {
      test("items are done some at a time, once each, and resumed where they were", async () => {
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
        expect((await ours.drive(wf, { n: 1 }, { id, drain })).status).toBe("suspended");
        expect(done.length).toBeLessThan(12);
        cut = new AbortController();
        const outcome = await toEnd(theirs, wf, id);
        expect(outcome).toMatchObject({ output: items.map((i) => i * 10) });
        expect(done.toSorted((a, b) => a - b)).toEqual(items);
        expect(most).toBe(3);
      });

      test("items fail fast, or are answered for one by one", async () => {
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
              async (i) => undone.push(i),
            );
            return results.map(({ status }) => status);
          });
        const fast = await toEnd(rt, run("fail-fast"), newId());
        expect(fast).toMatchObject({ status: "failed", error: { code: "TWO" } });
        expect(begun).toEqual([1, 2]);
        expect(undone).toEqual([1]);
        const collected = await toEnd(rt, run("collect"), newId());
        const [ok, no] = ["fulfilled", "rejected"];
        expect(collected).toMatchObject({ output: [ok, no, ok, ok] });
      });

      test("items that cannot be told apart are refused", async () => {
        const rt = runtime();
        const wf = flow(async (ctx) =>
          ctx.step.map("items", [1, 1], { keyOf: String }, async (i) => i),
        );
        const outcome = await rt.drive(wf, { n: 1 });
        expect(outcome).toMatchObject({ status: "failed", error: { name: "RangeError" } });
      });
    });

    describe("undo", () => {
      const saga = (log: string[], brake: () => void = () => {}) =>
        flow(async (ctx) => {
          for (const name of ["a", "b", "c"]) {
            await ctx.step(
              name,
              { retry: { jitter: "none" } },
              async () => `${name}!`,
              async (result, { idempotencyKey }) => {
                if (name === "b") brake();
                log.push(`undo ${result} ${idempotencyKey.split("/").at(-1)}`);
              },
            );
          }
          await ctx.step("d", { retry: false }, async () => {
            throw new TerminalError("NO");
          });
        });

      test("takes back what was done, the last first, and each once", async () => {
        const rt = runtime();
        const log: string[] = [];
        const id = newId();
        const outcome = await toEnd(rt, saga(log), id);
        expect(outcome).toMatchObject({ status: "failed", compensated: true });
        expect(outcome).toMatchObject({ error: { code: "NO" } });
        expect(log).toEqual(["undo c! c", "undo b! b", "undo a! a"]);
        await toEnd(rt, saga(log), newId());
      });

      test("that broke off half way goes on where it was", async () => {
        const [ours, theirs] = [runtime(), runtime()];
        const log: string[] = [];
        let times = 0;
        const wf = saga(log, () => {
          times += 1;
          if (times === 1) throw new Error("down for a moment");
        });
        const id = newId();
        const first = await ours.drive(wf, { n: 1 }, { id });
        expect(first).toMatchObject({ status: "suspended", reason: "retry-delay" });
        expect(log).toEqual(["undo c! c"]);
        expect(await toEnd(theirs, wf, id)).toMatchObject({ compensated: true });
        expect(log).toEqual(["undo c! c", "undo b! b", "undo a! a"]);
      });

      test("that fails for good is told, and the others are undone all the same", async () => {
        const rt = runtime();
        const log: string[] = [];
        const wf = saga(log, () => {
          throw new TerminalError("STUCK");
        });
        const outcome = await toEnd(rt, wf, newId());
        expect(outcome).toMatchObject({ status: "failed", compensated: false });
        expect(outcome).toMatchObject({ error: { code: "NO" } });
        expect(log).toEqual(["undo c! c", "undo a! a"]);
      });

      test("comes with cancelling, at the run's next step", async () => {
        const [ours, theirs] = [runtime(), runtime()];
        const log: string[] = [];
        const wf = flow(async (ctx) => {
          await ctx.step(
            "a",
            async () => 1,
            async () => log.push("undo a"),
          );
          await ctx.sleep("nap", "1h");
          log.push("never");
        });
        const id = newId();
        await ours.drive(wf, { n: 1 }, { id });
        expect(await theirs.cancel(id)).toBe("requested");
        const outcome = await ours.drive(wf, { n: 1 }, { id });
        expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_CANCELLED" } });
        expect(log).toEqual(["undo a"]);
        expect(await theirs.cancel(id)).toBe("ended");
        expect((await ours.journal.show(id))?.status).toBe("cancelled");
        await expect(ours.cancel(newId())).rejects.toMatchObject({ code: "UNKNOWN_RUN" });
      });

      test("comes with a run that takes too long", async () => {
        const rt = runtime();
        const log: string[] = [];
        const wf = flow(
          async (ctx) => {
            await ctx.step(
              "a",
              async () => 1,
              async () => log.push("undo a"),
            );
            await ctx.sleep("nap", 60);
            await ctx.step("b", async () => log.push("b"));
          },
          { timeout: 50 },
        );
        const outcome = await toEnd(rt, wf, newId());
        expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_TIMEOUT" } });
        expect(log).toEqual(["undo a"]);
      });
    });

    describe("a child", () => {
      test("is a run of its own, whose end wakes its parent", async () => {
        const rt = runtime();
        const child = flow(async (ctx, { n }) => {
          await ctx.waitFor("go", z.boolean());
          return n * 2;
        });
        const parent = flow(async (ctx) => ctx.child("double", child, { n: 21 }));
        const id = newId();
        const outcome = await rt.drive(parent, { n: 1 }, { id });
        expect(outcome).toMatchObject({ status: "suspended", reason: "child" });
        const childId = `${id}/double`;
        await rt.signal(childId, "go", true, { dedupeId: "a" });
        expect(await rt.resume(childId)).toMatchObject({ output: 42 });
        expect(await rt.resume(id)).toMatchObject({ status: "completed", output: 42 });
      });

      test("that fails, fails as a step does", async () => {
        const rt = runtime();
        const child = flow(async () => {
          throw new TerminalError("BAD", "no good");
        });
        const parent = flow(async (ctx) =>
          ctx.child("one", child, { n: 1 }).catch(({ code }) => code),
        );
        expect(await rt.drive(parent, { n: 1 })).toMatchObject({ output: "BAD" });
      });
    });

    describe("the end", () => {
      test("is kept for as long as it should be; then the id is free", async () => {
        const rt = runtime();
        let times = 0;
        const wf = flow(async () => ++times, { keep: 500 });
        const id = newId();
        expect(await rt.drive(wf, { n: 1 }, { id })).toMatchObject({ output: 1 });
        expect(await rt.drive(wf, { n: 1 }, { id })).toMatchObject({ output: 1 });
        await sleep(600);
        expect(await rt.drive(wf, { n: 2 }, { id })).toMatchObject({ output: 2 });
      });

      test("leaves nothing under way", async () => {
        const rt = runtime();
        const events: string[] = [];
        const wf = flow(async (ctx) => {
          void ctx.step("forgotten", async ({ signal }) => {
            signal.addEventListener("abort", () => events.push("aborted"));
            await sleep(10_000, undefined, { signal });
          });
          await ctx.step("done", () => sleep(5));
        });
        const outcome: RunOutcome<unknown> = await rt.drive(wf, { n: 1 });
        expect(outcome.status).toBe("completed");
        expect(events).toEqual(["aborted"]);
      });
    });
  });
}
