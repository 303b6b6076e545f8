import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { Codec, createRuntime, TerminalError } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow, signalled } from "../support/flow.ts";
import { within } from "../support/until.ts";

function runtime() {
  return createRuntime({ journal: memoryJournal(), inlineWait: 5 });
}

describe.concurrent("continueAsNew", () => {
  test("does not hide the failure of a step beside it", async () => {
    const wf = flow(async (ctx, { n }) => {
      if (n === 2) return "second";
      const fail = async () => {
        await sleep(50);
        throw new TerminalError("BOOM");
      };
      return Promise.all([ctx.continueAsNew({ n: 2 }), ctx.step("bad", { retry: false }, fail)]);
    });
    const failed = { status: "failed", error: { code: "BOOM" } };
    expect(await runtime().run(wf, { n: 1 })).toMatchObject(failed);
  });

  test("does not hide the error of the body beside it", async () => {
    const wf = flow(async (ctx, { n }) => {
      if (n === 2) return "second";
      const fail = async () => {
        await sleep(5);
        throw new TerminalError("BODY");
      };
      return Promise.all([ctx.continueAsNew({ n: 2 }), fail()]);
    });
    const failed = { status: "failed", error: { code: "BODY" } };
    expect(await runtime().run(wf, { n: 1 })).toMatchObject(failed);
  });

  test("waits for a step between its attempts", async () => {
    const attempts: number[] = [];
    const retry = { attempts: 3, base: 50, jitter: "none" } as const;
    const wf = flow(async (ctx, { n }) => {
      if (n === 2) return "second";
      const again = ctx.step("again", { retry }, async ({ attempt }) => {
        attempts.push(attempt);
        if (attempt < 2) throw new Error("again");
      });
      return Promise.all([ctx.continueAsNew({ n: 2 }), again]);
    });
    const outcome = await within(20_000, runtime().run(wf, { n: 1 }));
    expect(outcome).toMatchObject({ output: "second" });
    expect(attempts).toEqual([1, 2]);
  });

  test("waits for the answer to an update, whose handler's steps are not repeated", async () => {
    const keys: string[] = [];
    const pay = signalled({ pay: z.number() }, async (ctx) => {
      const isFirst =
        (await ctx.step("part", async ({ idempotencyKey }) => idempotencyKey)) === "r/part";
      const handler = async (amount: number) => {
        await ctx.step("charge", async ({ idempotencyKey }) => keys.push(idempotencyKey));
        await ctx.sleep("settle", 50);
        // Something of its own.
        await sleep(50);
        return amount;
      };
      const answer = ctx.answer("pay", handler, { timeout: 50 });
      await Promise.all([answer, ...(isFirst ? [ctx.continueAsNew({ n: 2 })] : [])]);
      return "second";
    });
    const rt = runtime();
    await rt.start(pay, { n: 1 }, { id: "r" });
    const ask = () => rt.update("r", "pay", 20, { dedupeId: "u", wait: 0 });
    expect(await ask()).toMatchObject({ status: "pending" });
    const outcome = within(20_000, rt.run(pay, { n: 1 }, { id: "r" }));
    expect(await outcome).toMatchObject({ output: "second" });
    expect(await ask()).toMatchObject({ status: "answered", output: 20 });
    expect(keys).toEqual(["r/charge"]);
  });

  const slow: Codec = {
    id: "slow",
    encode: (bytes) => sleep(60, bytes),
    decode: (bytes) => bytes,
  };
  const encrypted = Codec.encrypted({ keys: { a: new Uint8Array(32) }, current: "a" });

  test.each([slow, encrypted])(
    "loses no signal that a branch beside it has received, with the codec $id",
    async (codec) => {
      const handled: string[] = [];
      const wf = flow(async (ctx, { n }) => {
        if (n === 2) return undefined;
        const handle = async () => {
          const item = await ctx.waitFor("item", z.string());
          await ctx.publish("last", item.padEnd(200_000));
          await ctx.step("handle", async () => void handled.push(item));
        };
        return Promise.all([handle(), ctx.continueAsNew({ n: 2 })]);
      });
      const rt = createRuntime({ journal: memoryJournal(), codec });
      await rt.start(wf, { n: 1 }, { id: "r" });
      await rt.signal("r", "item", "one", { dedupeId: "1" });
      await within(20_000, rt.run(wf, { n: 1 }, { id: "r" }));
      expect(handled).toEqual(["one"]);
    },
  );

  test("loses no signal that a branch beside it has received when the run is drained", async () => {
    const handled: string[] = [];
    const drain = new AbortController();
    const wf = flow(async (ctx, { n }) => {
      if (n === 2) return undefined;
      const handle = async () => {
        const item = await ctx.waitFor("item", z.string());
        await sleep(5);
        drain.abort();
        await ctx.step("handle", async () => void handled.push(item));
      };
      return Promise.all([handle(), ctx.continueAsNew({ n: 2 })]);
    });
    const rt = runtime();
    await rt.start(wf, { n: 1 }, { id: "r" });
    await rt.signal("r", "item", "one", { dedupeId: "1" });
    const drained = await rt.execute(wf, { n: 1 }, { id: "r", drain: drain.signal });
    expect(drained).toMatchObject({ status: "suspended", reason: "deadline" });
    await within(20_000, rt.run(wf, { n: 1 }, { id: "r" }));
    expect(handled).toEqual(["one"]);
  });

  test("waits for a handler beside a branch that is idle", async () => {
    const handled: number[] = [];
    const wf = signalled({ add: z.number(), go: z.null(), close: z.null() }, async (ctx) => {
      const isFirst =
        (await ctx.step("part", async ({ idempotencyKey }) => idempotencyKey)) === "r/part";
      if (!isFirst) return "second";
      const answer = ctx.answer("add", async (n) => {
        await ctx.waitFor("go");
        // Something of its own.
        await sleep(100);
        handled.push(n);
      });
      return Promise.all([ctx.waitFor("close"), answer, ctx.continueAsNew({ n: 2 })]);
    });
    const rt = runtime();
    await rt.start(wf, { n: 1 }, { id: "r" });
    await rt.signal("r", "add", 1, { dedupeId: "1" });
    const execute = () => within(20_000, rt.execute(wf, { n: 1 }, { id: "r" }));
    expect(await execute()).toMatchObject({ status: "suspended", reason: "signal" });
    await rt.signal("r", "go", null, { dedupeId: "2" });
    expect(await execute()).toMatchObject({ output: "second" });
    expect(handled).toEqual([1]);
  });

  const reset = { reset: z.number() };

  test("inside the handler of an update blocks the run until the code is mended", async () => {
    const keys: string[] = [];
    let isMended = false;
    const wf = signalled(reset, async (ctx) => {
      const close = ctx.waitFor("close", z.number());
      const loop = async () => {
        const to = await ctx.answer("reset", async (n) => {
          await ctx.step("charge", async ({ idempotencyKey }) => keys.push(idempotencyKey));
          return isMended ? n : ctx.continueAsNew({ n });
        });
        if (to === 2) await ctx.continueAsNew({ n: to });
      };
      await Promise.all([close, loop()]);
      return "closed";
    });
    const rt = runtime();
    await rt.start(wf, { n: 1 }, { id: "r" });
    await rt.signal("r", "reset", 2, { dedupeId: "1" });
    const blocked = await within(20_000, rt.execute(wf, { n: 1 }, { id: "r" }));
    expect(blocked).toMatchObject({ status: "blocked", error: { code: "MISUSE" } });
    const problem = 'ctx.continueAsNew is called in the handler of update "reset"';
    expect(blocked).toHaveProperty(["error", "message"], expect.stringContaining(problem));
    isMended = true;
    await rt.retry("r");
    await rt.execute(wf, { n: 1 }, { id: "r" });
    expect(await rt.journal.find("r")).toMatchObject({ part: 2, reason: "signal" });
    expect(await rt.update("r", "reset", 2, { dedupeId: "1", wait: 0 })).toMatchObject({
      output: 2,
    });
    for (const name of ["reset", "close"]) await rt.signal("r", name, 0, { dedupeId: "2" });
    const outcome = within(20_000, rt.run(wf, { n: 1 }, { id: "r" }));
    expect(await outcome).toMatchObject({ output: "closed" });
    expect(keys).toEqual(["r/charge", "r/charge@0@2"]);
  });

  test("waits for a handler that awaits a call of the body", async () => {
    const wf = signalled({ ...reset, close: z.null() }, async (ctx) => {
      const closed = ctx.waitFor("close");
      const answer = ctx.answer("reset", () => closed);
      await Promise.all([closed, answer, ctx.continueAsNew({ n: 2 })]);
    });
    const rt = runtime();
    await rt.start(wf, { n: 1 }, { id: "r" });
    await rt.signal("r", "reset", 2, { dedupeId: "1" });
    const outcome = await within(20_000, rt.execute(wf, { n: 1 }, { id: "r" }));
    expect(outcome).toMatchObject({ status: "suspended", reason: "signal" });
  });

  test("that ends a history without the answer to an update blocks the run", async () => {
    const bodies: readonly Parameters<typeof signalled<typeof reset>>[1][] = [
      async (ctx) => {
        const next = ctx.continueAsNew({ n: 2 });
        await ctx.answer("reset", () => next);
      },
      async (ctx) => {
        const answer = ctx.answer("reset", () => ctx.sleep("long", "1h"));
        const other = ctx.step("other", () => sleep(50));
        await Promise.race([answer, ctx.continueAsNew({ n: 2 }), other]);
      },
      async (ctx) => {
        const idle = ctx.waitFor("close", z.null());
        const next = ctx.continueAsNew({ n: 2 });
        await Promise.all([idle, ctx.answer("reset", () => next)]);
      },
    ];
    for (const [i, body] of bodies.entries()) {
      const rt = runtime();
      const wf = signalled(reset, body);
      await rt.start(wf, { n: 1 }, { id: "r" });
      await rt.signal("r", "reset", 2, { dedupeId: "1" });
      const outcome = await within(20_000, rt.execute(wf, { n: 1 }, { id: "r" }));
      expect(outcome, `${i}`).toMatchObject({ status: "blocked", error: { code: "MISUSE" } });
      const problem = expect.stringContaining('update "reset" would have no answer');
      expect(outcome, `${i}`).toHaveProperty(["error", "message"], problem);
    }
  });
});
