import { describe, expect, test } from "vitest";
import { z } from "zod";
import { TerminalError } from "../../../core/steps/index.ts";
import { flow } from "../../support/flow.ts";
import type { StepsHarness } from "./harness.ts";

/** Runs that go on after their end. */
export function describeRetries({ newId, recordsOf, runtime, toEnd }: StepsHarness): void {
  describe("a retry", () => {
    test("executes the failed step again, and uses all other results again", async () => {
      const [ours, theirs] = [runtime(), runtime()];
      const done: string[] = [];
      let isDown = true;
      const wf = flow(async (ctx) => {
        const made = await ctx.step("make", async () => done.push("make"));
        const id = await ctx.uuid();
        await ctx.step("ship", { retry: false }, async ({ idempotencyKey }) => {
          done.push(`ship ${idempotencyKey.split("/").at(-1)}`);
          if (isDown) throw new Error("away");
        });
        return [made, id.length];
      });
      const id = newId();
      expect(await toEnd(ours, wf, id)).toMatchObject({ status: "failed" });
      isDown = false;
      expect(await theirs.retry(id)).toBe("reopened");
      expect(await theirs.retry(id)).toBe("open");
      expect(await toEnd(theirs, wf, id)).toMatchObject({ status: "completed", output: [1, 36] });
      // The failed attempt may have had its effect: its key stays.
      expect(done).toEqual(["make", "ship ship", "ship ship"]);
      const records = await recordsOf(ours, id);
      expect(records.filter((one) => one.startsWith("~old/"))).toHaveLength(1);
      expect(records).toContain("ship ok");
      await expect(ours.retry(id)).rejects.toMatchObject({ code: "RUN_COMPLETED" });
      await expect(ours.retry(newId())).rejects.toMatchObject({ code: "UNKNOWN_RUN" });
    });

    test("executes a step again that a cancellation has aborted, and starts a cancelled child anew", async () => {
      const rt = runtime();
      const calls: string[] = [];
      const child = flow(async (ctx) => {
        calls.push("child");
        if (calls.length === 1) await ctx.waitFor("never", z.string());
        return "grown";
      });
      const parent = flow(async (ctx) => ctx.child("c", child, { n: 1 }));
      const id = newId();
      expect(await rt.execute(parent, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
      await rt.execute(child, { n: 1 }, { id: `${id}/c` });
      await rt.cancel(`${id}/c`);
      await toEnd(rt, child, `${id}/c`);
      expect(await toEnd(rt, parent, id)).toMatchObject({ error: { code: "RUN_CANCELLED" } });
      expect(await rt.retry(id)).toBe("reopened");
      calls.push("retried");
      expect(await toEnd(rt, parent, id)).toMatchObject({ output: "grown" });

      let ships = 0;
      const wf = flow(async (ctx) =>
        ctx.step("ship", async ({ signal }) => {
          ships += 1;
          if (ships > 1) return "shipped";
          await rt.cancel(aborted);
          return new Promise<string>((_, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason));
          });
        }),
      );
      const aborted = newId();
      expect(await toEnd(rt, wf, aborted)).toMatchObject({ error: { code: "RUN_CANCELLED" } });
      expect(await rt.retry(aborted)).toBe("reopened");
      expect(await toEnd(rt, wf, aborted)).toMatchObject({ output: "shipped" });
    });

    test("does not repeat an at-most-once step that was interrupted beside the failed one", async () => {
      const rt = runtime();
      let starts = 0;
      let isDown = true;
      const semantics = "at-most-once";
      const wf = flow(async (ctx) => {
        const retry = { attempts: 2, base: 1, max: 1, jitter: "none" } as const;
        const second = Promise.withResolvers<void>();
        const failing = ctx.step("a", { retry }, async ({ attempt }) => {
          // The other step begins after the record of the first attempt, and before that of the second one.
          if (!isDown || attempt === 2) second.resolve();
          while (isDown && attempt === 2 && starts === 0) await new Promise(setImmediate);
          if (isDown) throw new Error("away");
        });
        await second.promise;
        const once = ctx.step("b", { semantics }, async ({ signal }) => {
          starts += 1;
          await new Promise((_, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason));
          });
        });
        await Promise.all([failing, once]);
      });
      const id = newId();
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed" });
      isDown = false;
      await rt.retry(id);
      expect(await toEnd(rt, wf, id)).toMatchObject({ error: { code: "STEP_INTERRUPTED" } });
      expect(starts).toBe(1);
    });

    test("gives each signal to one wait, also to one that is repeated", async () => {
      const rt = runtime();
      let isDown = true;
      const retry = { attempts: 2, base: 20, max: 20, jitter: "none" } as const;
      const wf = flow(async (ctx) => {
        const ship = ctx.step("ship", { retry }, async ({ attempt }) => {
          if (isDown) throw attempt === 1 ? new Error("away") : new TerminalError("AWAY");
        });
        const [, ...received] = await Promise.all([
          ship,
          ctx.waitFor("ok", z.string()),
          ctx.waitFor("ok", z.string(), { timeout: "1h" }),
        ]);
        return received;
      });
      const id = newId();
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
      await rt.signal(id, "ok", "once", { dedupeId: "1" });
      expect(await toEnd(rt, wf, id)).toMatchObject({ error: { code: "AWAY" } });
      isDown = false;
      await rt.retry(id);
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ status: "suspended" });
    });

    test("executes undone steps again with fresh keys, and undoes them again when it fails", async () => {
      const rt = runtime();
      const log: string[] = [];
      let isDown = true;
      const last = (key: string) => key.split("/").slice(1).join("/");
      const wf = flow(async (ctx) => {
        await ctx.step(
          "reserve",
          async ({ idempotencyKey }) => log.push(last(idempotencyKey)),
          async (_, { idempotencyKey, stepIdempotencyKey }) =>
            log.push(`${last(idempotencyKey)} of ${last(stepIdempotencyKey)}`),
        );
        await ctx.step("mail", async () => log.push("mail"));
        await ctx.step("charge", { retry: false, effect: "none" }, async () => {
          if (isDown) throw new TerminalError("DECLINED");
        });
      });
      const id = newId();
      for (let i = 0; i < 2; i += 1) {
        expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed", compensated: "yes" });
        await rt.retry(id);
      }
      isDown = false;
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "completed" });
      expect(log).toEqual([
        ...["reserve", "mail", "~undo/reserve of reserve"],
        ...["reserve@1", "~undo/reserve@1 of reserve@1"],
        "reserve@2",
      ]);
    });

    test("of a run that took another path after the failure may leave that path", async () => {
      const rt = runtime();
      let isDown = true;
      const wf = flow(async (ctx) => {
        try {
          await ctx.step("charge", { retry: false }, async () => {
            if (isDown) throw new Error("away");
          });
        } catch (error) {
          await ctx.step("tell", async () => {});
          throw error;
        }
        return ctx.step("ship", async () => "shipped");
      });
      const id = newId();
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed" });
      isDown = false;
      await rt.retry(id);
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: "shipped" });
    });

    test("of a cancelled run goes on where it was", async () => {
      const rt = runtime();
      const wf = flow(async (ctx) => {
        await ctx.step(
          "a",
          async () => 1,
          async () => {},
        );
        return ctx.waitFor("go", z.string());
      });
      const id = newId();
      await rt.execute(wf, { n: 1 }, { id });
      await rt.cancel(id);
      expect(await toEnd(rt, wf, id)).toMatchObject({ error: { code: "RUN_CANCELLED" } });
      await rt.retry(id);
      await rt.signal(id, "go", "on", { dedupeId: "1" });
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: "on" });
    });

    test("of failed undos attempts these alone, and changes what the run says", async () => {
      const rt = runtime();
      const undone: string[] = [];
      let isStuck = true;
      const wf = flow(async (ctx) => {
        for (const name of ["a", "b"]) {
          await ctx.step(
            name,
            async () => name,
            async (result) => {
              if (name === "a" && isStuck) throw new TerminalError("STUCK");
              undone.push(`${result}`);
            },
          );
        }
        throw new TerminalError("NO");
      });
      const id = newId();
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed", compensated: "no" });
      await expect(rt.retry(id)).rejects.toMatchObject({ code: "UNDO_FAILED" });
      isStuck = false;
      expect(await rt.retryUndo(id)).toBe("reopened");
      expect(await toEnd(rt, wf, id)).toMatchObject({
        ...{ status: "failed", compensated: "yes", error: { code: "NO" } },
      });
      expect(undone).toEqual(["b", "a"]);
      await expect(rt.retryUndo(id)).rejects.toMatchObject({ code: "NO_FAILED_UNDO" });
    });

    test("of a child's failed undo corrects what its parents say", async () => {
      const rt = runtime();
      let isStuck = true;
      const child = flow(async (ctx) => {
        const undo = async () => {
          if (isStuck) throw new TerminalError("STUCK");
        };
        await ctx.step("work", async () => {}, undo);
        throw new TerminalError("NO");
      });
      const parent = flow(async (ctx, input) => ctx.child("child", child, input));
      const wf = flow(async (ctx, input) => {
        await ctx.step(
          "own",
          async () => {},
          async () => {},
        );
        return ctx.child("parent", parent, input);
      });
      const id = newId();
      const ids = [`${id}/parent/child`, `${id}/parent`, id] as const;
      const said = async () =>
        Promise.all(ids.map(async (one) => (await rt.journal.show(one))?.ending?.compensated));
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed", compensated: "no" });
      expect(await said()).toEqual(["no", "no", "no"]);
      isStuck = false;
      expect(await rt.retryUndo(ids[0])).toBe("reopened");
      for (const one of ids) expect(await rt.resume(one)).toMatchObject({ status: "failed" });
      expect(await said()).toEqual(["yes", "yes", "yes"]);
    });

    test("starts a failed child anew", async () => {
      const rt = runtime();
      const { child, repair } = failingChild();
      const wf = flow(async (ctx) => ctx.child("a", child, { n: 1 }));
      const id = newId();
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed" });
      await rt.retry(id);
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed" });
      repair();
      await rt.retry(id);
      expect(await toEnd(rt, wf, id)).toMatchObject({ output: "grown" });
    });

    test("starts no child anew that a retry of its own has completed", async () => {
      const rt = runtime();
      const charged: string[] = [];
      let isDown = true;
      const child = flow(async (ctx, { n }) =>
        ctx.step("charge", { retry: false }, async ({ idempotencyKey }) => {
          if (isDown && n > 0) throw new Error("away");
          charged.push(idempotencyKey);
          return n;
        }),
      );
      const one = flow(async (ctx) => ctx.child("kid", child, { n: 1 }));
      const several = flow(async (ctx) =>
        ctx.children("kids", child, [{ n: 0 }, { n: 1 }], { keyOf: ({ n }) => `${n}` }),
      );
      for (const [wf, kid, output] of [
        [one, "kid", 1],
        [several, "kids[1]", [0, 1]],
      ] as const) {
        isDown = true;
        const id = newId();
        charged.length = 0;
        expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed" });
        isDown = false;
        await rt.retry(`${id}/${kid}`);
        expect(await rt.resume(`${id}/${kid}`)).toMatchObject({ status: "completed" });
        await rt.retry(id);
        expect(await toEnd(rt, wf, id)).toMatchObject({ status: "completed", output });
        expect(charged.filter((key) => key.includes(kid))).toEqual([`${id}/${kid}/charge`]);
      }
    });

    test("waits for a child that is retried as well", async () => {
      const rt = runtime();
      let isDown = true;
      const child = flow(async (ctx) => {
        if (isDown) throw new Error("away");
        return ctx.waitFor("go", z.string());
      });
      const wf = flow(async (ctx) => ctx.child("kid", child, { n: 1 }));
      const id = newId();
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed" });
      isDown = false;
      await rt.retry(`${id}/kid`);
      await rt.retry(id);
      expect(await rt.resume(id)).toMatchObject({ status: "suspended", reason: "child" });
      expect(await rt.journal.find(`${id}/kid@1`)).toBeUndefined();
    });

    test("gets past a child with an id of its own that was retried first", async () => {
      const rt = runtime();
      const { child, repair } = failingChild();
      const id = newId();
      const own = `${id}/own`;
      const wf = flow(async (ctx) => ctx.child("kid", child, { n: 1 }, { id: own }));
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "failed" });
      repair();
      await rt.retry(own);
      expect(await rt.resume(own)).toMatchObject({ status: "completed" });
      await rt.retry(id);
      expect(await toEnd(rt, wf, id)).toMatchObject({ status: "completed", output: "grown" });
    });
  });
}

/** A child whose step fails until it is repaired. */
function failingChild() {
  let isDown = true;
  const child = flow(async (ctx) =>
    ctx.step("grow", { retry: false }, async () => {
      if (isDown) throw new Error("away");
      return "grown";
    }),
  );
  const repair = () => {
    isDown = false;
  };
  return { child, repair };
}
