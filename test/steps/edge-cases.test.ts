import { describe, expect, test } from "vitest";
import { z } from "zod";
import { deadlineIn } from "../../core/lock/duration.ts";
import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { RuntimeOptions } from "../../core/steps/contract.ts";
import { entity } from "../../core/steps/entity/entity.ts";
import {
  type AnyWorkflow,
  createRuntime,
  TerminalError,
  type WorkflowContext,
  workflow,
} from "../../core/steps/index.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { flow, resume, untilResumed } from "../support/flow.ts";
import { pause, until, within } from "../support/until.ts";

const input = { n: 1 };

function runtime(options: Partial<RuntimeOptions> = {}) {
  return createRuntime({ journal: memoryJournal(), inlineWait: 5, ...options });
}

/** Thrown values that are no well-formed errors. */
const THROWN: readonly (readonly [string, () => unknown])[] = [
  ["undefined", () => undefined],
  ["a text", () => "no"],
  ["an object without a prototype", () => Object.create(null)],
  ["a symbol", () => Symbol("no")],
  ["a frozen error", () => Object.freeze(new Error("no"))],
  ["an error whose getter throws", () => hostile()],
  ["an error whose data cannot be kept", () => new TerminalError("NO", "no", { data: opaque() })],
  ["an error without a message", () => Object.assign(new Error(), { message: undefined })],
  ["an error with a very long name", () => Object.assign(new Error(), { name: LONG })],
];

/** Wrong arguments of steps, as JavaScript lets them pass, and the error. */
const WRONG_STEPS: readonly (readonly [
  message: string,
  call: (ctx: WrongContext, work: () => Promise<number>) => Promise<unknown>,
])[] = [
  [
    'step charge: timeout must be milliseconds or a text such as "8s", not the string "8 parsecs"',
    (ctx, work) => ctx.step("charge", { timeout: "8 parsecs" }, work),
  ],
  [
    "step charge: retry must be a policy such as { attempts: 5 }, or false, not 5",
    (ctx, work) => ctx.step("charge", { retry: 5 }, work),
  ],
  [
    "step charge: attempts must be a whole number from 1 to 10000, not 0",
    (ctx, work) => ctx.step("charge", { retry: { attempts: 0 } }, work),
  ],
  [
    'step charge: base must be milliseconds or a text such as "8s", not the string "soon"',
    (ctx, work) => ctx.step("charge", { retry: { base: "soon" } }, work),
  ],
  [
    'step charge: jitter must be "full", "equal" or "none", not the string "some"',
    (ctx, work) => ctx.step("charge", { retry: { jitter: "some" } }, work),
  ],
  [
    'step charge: semantics must be "at-most-once", not the string "exactly-once"',
    (ctx, work) => ctx.step("charge", { semantics: "exactly-once" }, work),
  ],
  [
    'step charge: effect must be "none", not the string "some"',
    (ctx, work) => ctx.step("charge", { effect: "some" }, work),
  ],
  [
    'step charge: onBusy must be "wait", "suspend" or "fail", not the string "explode"',
    (ctx, work) => ctx.step("charge", { lock: { names: "x", onBusy: "explode" } }, work),
  ],
  [
    "step charge: wait must be 0 to 86400000 ms, not 172800000",
    (ctx, work) => ctx.step("charge", { lock: { names: "x", wait: "2d" } }, work),
  ],
  [
    "step charge: lock name must not be empty",
    (ctx, work) => ctx.step("charge", { lock: "" }, work),
  ],
  [
    "step charge: its function must be a function, not undefined",
    (ctx) => ctx.step("charge", { retry: false }),
  ],
  [
    'step charge: its undo must be a function, not the string "refund"',
    (ctx, work) => ctx.step("charge", work, "refund"),
  ],
  [
    "step.map charge: keyOf must be a function, not undefined",
    (ctx, work) => ctx.step.map("charge", [1], work),
  ],
  [
    "step.map charge: its function must be a function, not undefined",
    (ctx) => ctx.step.map("charge", [1], { keyOf: String }),
  ],
  [
    'step.map charge: onError must be "fail-fast" or "collect", not the string "go on"',
    (ctx, work) => ctx.step.map("charge", [1], { keyOf: String, onError: "go on" }, work),
  ],
  [
    'step.map charge: lock must be a function, not the string "x"',
    (ctx, work) => ctx.step.map("charge", [1], { keyOf: String, lock: "x" }, work),
  ],
  [
    'step charge: output must be a schema of zod, valibot or arktype, not the string "number"',
    (ctx, work) => ctx.step("charge", { output: "number" }, work),
  ],
];

/** Takes any arguments. */
interface WrongContext {
  readonly step: WrongCall & { readonly map: WrongCall };
}

type WrongCall = (...args: readonly unknown[]) => Promise<unknown>;

const LONG = "x".repeat(2_000_000);

function hostile(): Error {
  const get = () => {
    throw new Error("from a getter");
  };
  return Object.defineProperty(new Error("no"), "message", { get });
}

/** A value that no journal can keep. */
function opaque(): unknown {
  return () => {};
}

class Amount {
  readonly cents = 5n;
  format() {
    return `${this.cents}`;
  }
}

describe.concurrent("workflows", () => {
  test.for(THROWN)("a step that throws %s fails", async ([, make]) => {
    const rt = runtime();
    const wf = flow(async (ctx) => {
      const throwing = async () => {
        throw make();
      };
      await ctx.step("a", { retry: false }, throwing).catch(() => {});
      await ctx.step("b", async () => {});
      await untilResumed(ctx);
      throw make();
    });
    await within(60_000, rt.execute(wf, input, { id: "r" }));
    await resume(rt, "r");
    const outcome = await within(60_000, rt.run(wf, input, { id: "r" }));
    expect(outcome).toMatchObject({ status: "failed" });
    expect(outcome).not.toMatchObject({ error: { code: "NON_DETERMINISM" } });
    const records = (await rt.journal.show("r"))?.records ?? [];
    expect(records.map(({ key, outcome: how }) => `${key} ${how}`)).toContain("a failed");
  });

  test.for<readonly [string, () => unknown]>([
    ["an instance of a class with methods", () => new Amount()],
    ["a function", opaque],
    ["an array nested too deeply", () => nested(20_000)],
  ])("a step with a result that is %s fails without a retry", async ([, make]) => {
    const rt = runtime();
    let times = 0;
    const wf = flow(async (ctx) =>
      ctx.step("a", { retry: { base: 0 } }, async () => {
        times += 1;
        return make();
      }),
    );
    expect(await rt.execute(wf, input)).toMatchObject({
      status: "failed",
      error: { code: "INVALID" },
    });
    expect(times).toBe(1);
  });

  test.for<readonly [string, object]>([
    [
      "throws in retryIf",
      {
        retryIf() {
          throw new Error("no idea");
        },
      },
    ],
    ["returns an invalid pause from retryIf", { retryIf: () => ({ after: "soon" }) }],
  ])("a retry policy that %s fails the step for good", async ([, retry]) => {
    const rt = runtime();
    const wf = flow(async (ctx) => {
      const failing = async () => {
        throw new Error("no");
      };
      await ctx.step("a", { retry }, failing).catch(() => {});
      await ctx.step("b", async () => {});
      await untilResumed(ctx);
      return "end";
    });
    await rt.execute(wf, input, { id: "r" });
    await resume(rt, "r");
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: "end" });
  });

  test("an undo whose retry policy throws is reported, and the other undos are called", async () => {
    const rt = runtime();
    const undone: string[] = [];
    const retryIf = () => {
      throw new Error("no idea");
    };
    const wf = flow(async (ctx) => {
      const undo = (name: string) => async () => {
        undone.push(name);
        if (name === "b") throw new Error("no");
      };
      for (const name of ["a", "b"])
        await ctx.step(name, { retry: { retryIf } }, async () => 1, undo(name));
      throw new TerminalError("NO");
    });
    expect(await rt.execute(wf, input)).toMatchObject({ status: "failed", compensated: "no" });
    expect(undone).toEqual(["b", "a"]);
  });

  test("patched returns the same answer in further calls", async () => {
    const rt = runtime();
    let isNew = false;
    const wf = flow(async (ctx) => {
      await ctx.step("a", async () => {});
      const first = isNew && (await ctx.patched("p"));
      await ctx.step("b", async () => {});
      await untilResumed(ctx);
      return [first, isNew && (await ctx.patched("p")), isNew && (await ctx.patched("p"))];
    });
    await rt.execute(wf, input, { id: "old" });
    isNew = true;
    await rt.execute(wf, input, { id: "new" });
    await resume(rt, "old");
    expect(await rt.run(wf, input, { id: "old" })).toMatchObject({ output: [false, false, false] });
    await resume(rt, "new");
    expect(await rt.run(wf, input, { id: "new" })).toMatchObject({ output: [true, true, true] });
  });

  test("patches may have names that look like the attempts of a step", async () => {
    const rt = runtime();
    const wf = flow(async (ctx) => {
      const answer = await ctx.waitFor("invoice", z.string());
      await ctx.patched("issue@7 started");
      await untilResumed(ctx);
      return ctx.step("end", async () => answer);
    });
    await rt.start(wf, input, { id: "r" });
    await rt.signal("r", "invoice", "paid", { dedupeId: "a" });
    await rt.execute(wf, input, { id: "r" });
    await resume(rt, "r");
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: "paid" });
  });

  test("a signal that is too large together with its id is refused, and discarded by the run", async () => {
    const rt = runtime();
    const wf = flow(async (ctx) => ctx.waitFor("big", z.string()));
    await rt.start(wf, input, { id: "r" });
    const payload = "x".repeat(1_048_576 - 20);
    const sending = rt.signal("r", "big", payload, { dedupeId: "a" });
    await expect(sending).rejects.toMatchObject({ code: "TOO_LARGE" });
    const encoded = JSON.stringify({ json: payload });
    await rt.journal.signal("r", { name: "big", dedupeId: "a", payload: encoded });
    await rt.journal.signal("r", { name: "big", dedupeId: "b", payload: "no JSON" });
    await rt.signal("r", "big", "small", { dedupeId: "c" });
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({ output: "small" });
  });

  test("a schema that throws fails the wait, and keeps the signal", async () => {
    const rt = runtime();
    const broken = z.string().transform(() => {
      throw new Error("a bug");
    });
    const wf = flow(async (ctx) => {
      await ctx.waitFor("news", broken).catch(() => {});
      return ctx.waitFor("news", z.string());
    });
    await rt.start(wf, input, { id: "r" });
    await rt.signal("r", "news", "kept", { dedupeId: "a" });
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({ output: "kept" });
  });

  test("an entity's policy for retries is checked", () => {
    const define = (retry: object) =>
      entity({ name: "e", state: z.number(), initial: 0, retry }, () => ({}));
    expect(() => define({ attempts: Number.NaN })).toThrow(/^attempts must be/);
    expect(() => define({ factor: 0.5 })).toThrow(/^factor must be/);
  });

  test.each([Number.NaN, -1, "-1s" as const])(
    "a wait for locks of %s is refused before the run is taken",
    async (lockWait) => {
      const rt = runtime();
      const wf = flow(async () => 1);
      await expect(rt.execute(wf, input, { id: "r", lockWait })).rejects.toThrow(
        /^lockWait must be/,
      );
      await expect(rt.show("r")).resolves.toBeUndefined();
    },
  );

  test("a step whose lock is free after the run's timeout does not begin", async () => {
    const locks = memoryLocks();
    const rt = runtime({ locks });
    const held = await locks.lock("busy", { ttl: 60_000, wait: 0 });
    let calls = 0;
    const wf = flow(
      async (ctx) =>
        ctx.step("charge", { lock: { names: "busy", wait: 10_000 } }, async () => {
          calls += 1;
        }),
      { timeout: 1_000 },
    );
    const running = rt.run(wf, input, { id: "r" });
    await pause(2_000);
    await held.unlock();
    expect(await running).toMatchObject({ status: "failed", error: { code: "RUN_TIMEOUT" } });
    expect(calls).toBe(0);
  });

  test("a run whose outcome is kept no longer is not executed again by the call that waits for it", async () => {
    const journal = memoryJournal();
    const rt = runtime({ journal });
    let calls = 0;
    const wf = flow(
      async (ctx) => {
        await ctx.waitFor("go", z.number());
        await ctx.step("charge", async () => {
          calls += 1;
        });
      },
      { keep: 0 },
    );
    const running = rt.run(wf, input, { id: "r" });
    await until(async () => (await rt.show("r"))?.status === "parked");
    await rt.signal("r", "go", 1, { dedupeId: "1" });
    expect(await rt.resume("r")).toMatchObject({ status: "completed" });
    await expect(running).rejects.toMatchObject({ code: "UNKNOWN_RUN" });
    expect(calls).toBe(1);
  });

  test("a run that waits for a signal fails at its timeout", async () => {
    const rt = runtime();
    const wf = flow(async (ctx) => ctx.waitFor("never", z.string()), { timeout: 3_000 });
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({ status: "suspended" });
    const outcome = await rt.run(wf, input, { id: "r" });
    expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_TIMEOUT" } });
  });

  test("a promise of the workflow's own does not delay the end of an execution at its deadline", async () => {
    const rt = runtime();
    const wf = flow(async () => new Promise(() => {}));
    const outcome = await within(60_000, rt.execute(wf, input, { deadline: deadlineIn(50) }));
    expect(outcome).toMatchObject({ status: "suspended", reason: "deadline" });
  });

  test("a promise of the workflow's own does not delay the end of an execution that has lost its lease", async () => {
    let isCut = false;
    const journal = injectFaults(memoryJournal(), (point) => {
      if (isCut && point === "renew:before") throw new StoreUnavailableError("memory:", "cut off");
    });
    const rt = runtime({ journal, lease: 150 });
    const wf = flow(async () => {
      isCut = true;
      await new Promise(() => {});
    });
    expect(await within(60_000, rt.execute(wf, input))).toMatchObject({ status: "busy" });
  });

  test("a process that was frozen for longer than its lease does not start a step", async () => {
    let begun = false;
    const journal = injectFaults(memoryJournal(), (point) => {
      if (point === "append:after") freeze(700);
    });
    const rt = runtime({ journal, lease: 500 });
    const wf = flow(async (ctx) =>
      ctx.step("charge", { semantics: "at-most-once" }, async () => {
        begun = true;
      }),
    );
    expect(await rt.execute(wf, input)).toMatchObject({ status: "busy" });
    expect(begun).toBe(false);
  });

  /** Kills the process of the first attempt: its journal takes no more calls. */
  async function afterKill(
    step: (ctx: WorkflowContext, begin: () => Promise<void>) => Promise<unknown>,
  ) {
    const journal = memoryJournal();
    let begun = 0;
    const killed = injectFaults(journal, () => {
      if (begun > 0) throw new StoreUnavailableError("the journal", "the process is killed");
    });
    const begin = async () => {
      begun += 1;
      if (begun === 1) await new Promise<never>(() => {});
    };
    const wf = flow((ctx) => step(ctx, begin));
    const first = runtime({ journal: killed, lease: 300 });
    first.execute(wf, input, { id: "r" }).catch(() => {});
    await until(() => begun === 1);
    const outcome = await within(20_000, runtime({ journal }).run(wf, input, { id: "r" }));
    return { outcome, begun };
  }

  test("an at-most-once step of a killed process is not started again", async () => {
    const { outcome, begun } = await afterKill((ctx, begin) =>
      ctx.step("charge", { semantics: "at-most-once" }, begin),
    );
    expect(outcome).toMatchObject({ status: "failed", error: { code: "STEP_INTERRUPTED" } });
    expect(begun).toBe(1);
  });

  test("a step of a killed process is undone, although its repetition had no effect", async () => {
    const undone: string[] = [];
    const { begun } = await afterKill((ctx, begin) =>
      ctx.step(
        "charge",
        { retry: false },
        async () => {
          await begin();
          throw Object.assign(new Error("declined"), { effect: "none" });
        },
        async (_, { outcome }) => undone.push(outcome),
      ),
    );
    expect(begun).toBe(2);
    expect(undone).toEqual(["unknown"]);
  });

  test("a signal does not end the pause before the next attempt", async () => {
    const rt = runtime();
    let attempts = 0;
    const wf = flow(async (ctx) =>
      ctx.step("a", { retry: { base: 60_000, max: 60_000, jitter: "none" } }, async () => {
        attempts += 1;
        throw new Error("no");
      }),
    );
    const paused = { status: "suspended", reason: "retry-delay" };
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject(paused);
    await rt.signal("r", "wake", null, { dedupeId: "1" });
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject(paused);
    expect(attempts).toBe(1);
  });

  test.for(WRONG_STEPS)("a wrong step is not attempted: %s", async ([message, call]) => {
    let calls = 0;
    const work = async () => {
      calls += 1;
      return 1;
    };
    const wf = flow(async (ctx) => call(ctx as unknown as WrongContext, work));
    const rt = runtime({ locks: memoryLocks() });
    const blocked = { status: "blocked", error: { code: "MISUSE", message } };
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject(blocked);
    expect(calls).toBe(0);
  });

  test("an input that cannot be stored is refused by its path", async () => {
    const wf = workflow({ name: "open", version: 1, input: z.any() }, async () => {});
    await expect(runtime().start(wf, { items: [() => {}] })).rejects.toThrow(
      "the input of open is not valid: at .items[0]: a function cannot be stored",
    );
  });

  test("a value that is no workflow is described", async () => {
    const wf = { name: "open" } as unknown as AnyWorkflow;
    await expect(runtime().start(wf, input as never)).rejects.toThrow("and is not an object");
  });

  test("a run is given back at once by a process that does not know its workflow", async () => {
    const journal = memoryJournal();
    const wf = flow(async () => 1);
    await runtime({ journal }).start(wf, input, { id: "r" });
    const resuming = runtime({ journal }).resume("r");
    await expect(resuming).rejects.toMatchObject({ code: "UNKNOWN_WORKFLOW" });
    const outcome = await runtime({ journal }).execute(wf, input, { id: "r" });
    expect(outcome).toMatchObject({ status: "completed" });
  });

  test("inputs are equal with other shared objects and another order of keys", async () => {
    const rt = runtime();
    const wf = flow(async () => 1, {
      input: z.object({ n: z.number(), from: z.any(), to: z.any() }) as never,
    });
    const here = { city: "Ulm" };
    await rt.execute(wf, { n: 1, from: here, to: here } as never, { id: "r" });
    const again = { to: { city: "Ulm" }, from: { city: "Ulm" }, n: 1 };
    expect(await rt.execute(wf, again as never, { id: "r" })).toMatchObject({ output: 1 });
  });

  test("a missing option of a runtime's call is named", async () => {
    const shop = { journal: memoryJournal(), locks: memoryLocks() };
    const wrong = (options: object) => () => createRuntime(options as RuntimeOptions);
    expect(wrong({ journal: shop })).toThrow(
      "createRuntime needs a journal, such as { journal: shop.journal }",
    );
    expect(wrong({ ...shop, locks: shop })).toThrow(
      "locks must be a store of locks, such as { locks: shop.locks }",
    );
    const rt = createRuntime(shop);
    const wf = flow(async (ctx) => ctx.waitFor("go", z.number()));
    await rt.execute(wf, input, { id: "r" });
    const missing = undefined as never;
    const dedupe = "dedupe id must be a string, not undefined";
    await expect(rt.signal("r", "go", 1, missing)).rejects.toThrow(dedupe);
    await expect(rt.update("r", "go", 1, missing)).rejects.toThrow(dedupe);
    await expect(rt.fork("r", missing)).rejects.toThrow("from must be a string, not undefined");
    await expect(rt.start(wf, input, { singleton: "" })).rejects.toThrow(
      "singleton must not be empty",
    );
  });
});

describe.concurrent("the locks of a step", () => {
  test("a step whose lock was lost while it kept the event loop busy is attempted again", async () => {
    await using locks = memoryLocks();
    const rt = runtime({ locks });
    const options = { lock: { names: ["a"], ttl: 100 }, retry: { base: 1 } };
    const wf = flow(async (ctx) =>
      ctx.step("busy", options, async ({ attempt }) => {
        const end = performance.now() + 150;
        while (attempt === 1 && performance.now() < end);
        return attempt;
      }),
    );
    expect(await rt.run(wf, input)).toMatchObject({ status: "completed", output: 2 });
  });

  test("the signal of a step aborts when its lock is lost", async () => {
    await using locks = memoryLocks();
    const rt = runtime({ locks });
    const options = { lock: { names: ["a"], ttl: 300 }, retry: { base: 1 } };
    const wf = flow(async (ctx) =>
      ctx.step("long", options, async ({ attempt, signal, fence }) => {
        if (attempt > 1) return attempt;
        await locks.release("a", { fence: String(fence) });
        return new Promise<never>((_, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason));
        });
      }),
    );
    expect(await within(10_000, rt.run(wf, input))).toMatchObject({ output: 2 });
  });

  test("the fence of a step is that of the first name", async () => {
    const rt = runtime({ locks: memoryLocks() });
    const wf = flow(async (ctx) =>
      ctx.step("a", { lock: ["z", "b"] }, async ({ fence }) => fence.resource),
    );
    expect(await rt.execute(wf, input)).toMatchObject({ output: "z" });
  });

  test.for([
    ["with an unknown outcome", () => new UnknownOutcomeError("memory:", "it was locked")],
    ["that is unavailable", () => new StoreUnavailableError("memory:", "away")],
  ] as const)("a lock store %s costs no attempt", async ([, make]) => {
    let calls = 0;
    const locks = injectFaults(memoryLocks(), (point) => {
      if (point === "lockAll:before" && ++calls === 1) throw make();
    });
    const rt = runtime({ locks });
    const wf = flow(async (ctx) =>
      ctx.step("a", { lock: "x", retry: false }, async ({ attempt }) => attempt),
    );
    const outcome = await rt.execute(wf, input, { id: "r" });
    expect(outcome).toMatchObject({ status: "suspended", reason: "lock-busy" });
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: 1 });
  });

  test("the wait for a lock leaves the step its budget", async () => {
    const locks = memoryLocks();
    const held = await locks.lock("x", { ttl: 60_000, wait: 0 });
    const rt = runtime({ locks });
    let begun = false;
    const wf = flow(async (ctx) =>
      ctx.step("a", { lock: "x", budget: 5_000 }, async () => {
        begun = true;
      }),
    );
    setTimeout(() => void held.unlock(), 3_500);
    const outcome = await rt.execute(wf, input, { deadline: deadlineIn(6_000) });
    expect(outcome.status).toBe("suspended");
    expect(begun).toBe(false);
  });
});

/** Blocks the event loop. */
function freeze(millis: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, millis);
}

function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < depth; level += 1) value = [value];
  return value;
}
