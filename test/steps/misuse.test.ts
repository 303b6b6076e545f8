import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import {
  createRuntime,
  type RunOutcome,
  type StepScope,
  type WorkflowContext,
  workflow,
} from "../../core/steps/index.ts";
import { Schedule } from "../../core/steps/schedule.ts";
import { openMemory } from "../../core/stores/memory/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { flow, resume, untilResumed } from "../support/flow.ts";
import { until, within } from "../support/until.ts";

const input = { n: 1 };

function runtime(journal = memoryJournal()) {
  return createRuntime({ journal, inlineWait: 5 });
}

/** The error of a run that goes on once its code is mended. */
function messageOf(outcome: RunOutcome<unknown>): string {
  return outcome.status === "blocked" ? outcome.error.message : `${outcome.status}, not blocked`;
}

type Call = (ctx: WorkflowContext) => Promise<unknown>;

const CALLS: readonly (readonly [string, Call])[] = [
  ["ctx.step", (ctx) => ctx.step("inner", async () => {})],
  ["ctx.step.tx", (ctx) => ctx.step.tx("inner", { lock: "x" }, async () => {})],
  ["ctx.step.map", (ctx) => ctx.step.map("inner", [1], { keyOf: String }, async () => {})],
  ["ctx.sleep", (ctx) => ctx.sleep("nap", "1h")],
  ["ctx.waitFor", (ctx) => ctx.waitFor("paid", z.string())],
  ["ctx.child", (ctx) => ctx.child("one", leaf, input)],
  ["ctx.now", (ctx) => ctx.now()],
  ["ctx.random", (ctx) => ctx.random()],
  ["ctx.uuid", (ctx) => ctx.uuid()],
  ["ctx.patched", (ctx) => ctx.patched("p")],
];

const leaf = flow(async () => 1);

describe.concurrent("a call of the context inside a step", () => {
  test.for(CALLS)("%s inside a step's function blocks the run", async ([name, call]) => {
    let times = 0;
    const wf = flow(async (ctx) =>
      ctx.step("charge", async () => {
        times += 1;
        await call(ctx);
      }),
    );
    const outcome = await within(60_000, runtime().execute(wf, input));
    const problem = `step "charge" calls ${name} inside its function; call it in the workflow's body`;
    expect(messageOf(outcome)).toContain(problem);
    expect(times).toBe(1);
  });

  test("a mended step is executed again with the same key, and a cancellation meanwhile is unclear about it", async () => {
    const journal = memoryJournal();
    for (const isMended of [true, false]) {
      const id = `mended: ${isMended}`;
      let isMisused = true;
      const keys: string[] = [];
      const wf = flow(async (ctx) => {
        await ctx.step(
          "reserve",
          async () => {},
          async () => {},
        );
        return ctx.step("charge", async ({ idempotencyKey }) => {
          keys.push(idempotencyKey);
          if (isMisused) await ctx.uuid();
          return "charged";
        });
      });
      const rt = runtime(journal);
      expect(await rt.execute(wf, input, { id })).toMatchObject({ status: "blocked" });
      isMisused = !isMended;
      if (isMended) await rt.retry(id);
      else await rt.cancel(id);
      expect(await rt.execute(wf, input, { id })).toMatchObject(
        isMended
          ? { status: "completed", output: "charged" }
          : { status: "failed", error: { code: "RUN_CANCELLED" }, compensated: "unclear" },
      );
      expect(new Set(keys).size).toBe(1);
    }
  });

  test("the pauses of a run that stays blocked grow", async () => {
    const wf = flow(async (ctx) => ctx.step("charge", async () => ctx.uuid()));
    const rt = runtime();
    const pauses: unknown[] = [];
    for (const dedupeId of ["1", "2", "3"]) {
      const outcome = await rt.execute(wf, input, { id: "r" });
      if (outcome.status === "blocked") pauses.push(outcome.retryIn);
      await rt.signal("r", "wake", 1, { dedupeId });
    }
    expect(pauses).toEqual([5_000, 10_000, 20_000]);
  });

  test("a step that swallows the error of such a call blocks the run all the same", async () => {
    const wf = flow(async (ctx) =>
      ctx.step("charge", async () => {
        await sleep(1);
        await ctx.sleep("nap", "1h").catch(() => {});
        return "swallowed";
      }),
    );
    const outcome = await within(60_000, runtime().execute(wf, input));
    expect(messageOf(outcome)).toContain('step "charge" calls ctx.sleep');
  });

  test("an undo that makes such a call fails for good, and the other undos are called", async () => {
    const undone: string[] = [];
    const wf = flow(async (ctx) => {
      await ctx.step(
        "a",
        async () => {},
        async () => undone.push("a"),
      );
      await ctx.step(
        "b",
        async () => {},
        async () => ctx.sleep("nap", "1h"),
      );
      throw new Error("no");
    });
    const outcome = await within(60_000, runtime().execute(wf, input));
    expect(outcome).toMatchObject({ status: "failed", compensated: "no" });
    expect(undone).toEqual(["a"]);
  });

  test("a step may execute a run of another workflow", async () => {
    const rt = runtime();
    const other = flow(async (ctx, { n }) => ctx.step("double", async () => n * 2));
    const wf = flow(async (ctx) => ctx.step("other", async () => rt.run(other, { n: 21 })));
    const outcome = await within(60_000, rt.execute(wf, input));
    expect(outcome).toMatchObject({ output: { status: "completed", output: 42 } });
  });
});

type WrongCall = (...args: readonly unknown[]) => Promise<unknown>;

/** Takes any arguments. */
interface WrongContext {
  readonly step: WrongCall;
  readonly sleep: WrongCall;
  readonly waitFor: WrongCall;
  readonly answer: WrongCall;
  readonly publish: WrongCall;
  readonly patched: WrongCall;
  readonly child: WrongCall;
  readonly children: WrongCall;
  readonly continueAsNew: WrongCall;
}

const WRONG_CALLS: readonly (readonly [string, (ctx: WrongContext) => Promise<unknown>])[] = [
  ['unknown option "retries" of step', (ctx) => ctx.step("ship", { retries: 5 }, async () => {})],
  ["args is not valid", (ctx) => ctx.step("ship", { args: { f() {} } }, async () => {})],
  [
    "retryIf must be a fun",
    (ctx) => ctx.step("ship", { retry: { retryIf: true } }, async () => {}),
  ],
  ["key must not be empty", (ctx) => ctx.step("ship", { key: "" }, async () => {})],
  ["step name must be a string", (ctx) => ctx.step(5, async () => {})],
  ["span must be milliseconds", (ctx) => ctx.sleep("nap", "soon")],
  ['signal "paid" has no schema', (ctx) => ctx.waitFor("paid")],
  ["timeout must be milliseconds", (ctx) => ctx.waitFor("paid", z.number(), {})],
  ["the handler of the update must be", (ctx) => ctx.answer("add")],
  ["published name must not be empty", (ctx) => ctx.publish("", 1)],
  ["patch id must not be empty", (ctx) => ctx.patched("")],
  ["a workflow is made by workflow(…)", (ctx) => ctx.child("one", "leaf", input)],
  ["run id must not be empty", (ctx) => ctx.child("one", leaf, input, { id: "" })],
  ["its items must be a list", (ctx) => ctx.children("all", leaf, 5, { keyOf: String })],
  ["children all: keyOf must be", (ctx) => ctx.children("all", leaf, [input])],
  ["unknown option", (ctx) => ctx.continueAsNew(input, { undos: false })],
];

describe.concurrent("a wrong argument of a call", () => {
  test.for(WRONG_CALLS)("blocks the run, and undoes nothing: %s", async ([message, call]) => {
    const undone: string[] = [];
    const wf = flow(async (ctx) => {
      await ctx.step(
        "charge",
        async () => 1,
        async () => undone.push("charge"),
      );
      await call(ctx as unknown as WrongContext).catch(() => {});
      return "caught";
    });
    expect(messageOf(await runtime().execute(wf, input))).toContain(message);
    expect(undone).toEqual([]);
  });

  test("a step with a mended option goes on, and a cancelled run with a wrong one is undone", async () => {
    const journal = memoryJournal();
    for (const isMended of [true, false]) {
      const id = `mended: ${isMended}`;
      const undone: string[] = [];
      let options: object = { retries: 5 };
      const wf = flow(async (ctx) => {
        await ctx.step(
          "charge",
          async () => 1,
          async () => undone.push("charge"),
        );
        return ctx.step("ship", options, async () => "shipped");
      });
      const rt = runtime(journal);
      expect(await rt.execute(wf, input, { id })).toMatchObject({ status: "blocked" });
      if (isMended) options = { retry: { attempts: 5 } };
      await (isMended ? rt.retry(id) : rt.cancel(id));
      expect(await rt.execute(wf, input, { id })).toMatchObject(
        isMended
          ? { status: "completed", output: "shipped" }
          : { status: "failed", error: { code: "RUN_CANCELLED" }, compensated: "yes" },
      );
      expect(undone).toEqual(isMended ? [] : ["charge"]);
    }
  });

  test.for<readonly [string, object]>([
    ["step ship: ttl must be 100 to 86400000 ms, not 50", { names: "a", ttl: 50 }],
    [
      "step ship: lockAll takes 1 to 50 names, not 51",
      { names: Array.from({ length: 51 }, (_, i) => `${i}`) },
    ],
  ])(
    "options that the store of locks refuses are no failed attempt: %s",
    async ([message, lock]) => {
      await using shop = await openSqlite(":memory:");
      const { journal, locks } = shop;
      const rt = createRuntime({ journal, locks });
      const undone: string[] = [];
      let calls = 0;
      const wf = flow(async (ctx) => {
        await ctx.step(
          "charge",
          async () => 1,
          async () => undone.push("charge"),
        );
        await ctx.step("ship", { lock, semantics: "at-most-once" } as never, async () => {
          calls += 1;
        });
      });
      expect(messageOf(await rt.execute(wf, input, { id: "r" }))).toBe(message);
      const { records = [] } = (await journal.show("r")) ?? {};
      expect(records.map(({ key }) => key)).toEqual(["charge@1 started", "charge"]);
      expect([calls, undone]).toEqual([0, []]);
    },
  );

  test("an error of the same type from a function of the code is an ordinary failure", async () => {
    let attempts = 0;
    const retried = flow(async (ctx) =>
      ctx.step("a", { retry: { base: 0 } }, async () => {
        attempts += 1;
        if (attempts < 3) throw attempts < 2 ? new TypeError("no") : new RangeError("no");
      }),
    );
    expect(await runtime().execute(retried, input)).toMatchObject({ status: "completed" });
    const keyOf = () => {
      throw new TypeError("no key");
    };
    const failing = flow(async (ctx) => ctx.step.map("all", [1], { keyOf }, async () => {}));
    expect(await runtime().execute(failing, input)).toMatchObject({
      status: "failed",
      error: { message: "no key" },
    });
  });
});

describe.concurrent("a call that the body does not await", () => {
  const forgotten: readonly (readonly [string, Call])[] = [
    ["step", (ctx) => ctx.step("log", async () => {})],
    ["step", (ctx) => ctx.step("log", (scope) => hang(scope))],
    ["step.map", (ctx) => ctx.step.map("log", [1], { keyOf: String }, async () => {})],
    ["sleep", (ctx) => ctx.sleep("log", "1h")],
    ["child", (ctx) => ctx.child("log", leaf, input)],
  ];

  test.for(forgotten)(
    "a forgotten %s blocks the run by name, and at once, and undoes nothing",
    async ([kind, call]) => {
      const undone: string[] = [];
      const wf = flow(async (ctx) => {
        void call(ctx);
        await ctx.step(
          "reserve",
          async () => {},
          async () => undone.push("reserve"),
        );
        return "done";
      });
      const outcome = await within(60_000, runtime().execute(wf, input));
      expect(messageOf(outcome)).toBe(`ctx.${kind} "log" was not awaited; await it in the body`);
      expect(undone).toEqual([]);
    },
  );

  test("a run goes on when its forgotten step is awaited", async () => {
    let isMended = false;
    const wf = flow(async (ctx) => {
      const log = ctx.step("log", async () => "logged");
      await ctx.step("reserve", async () => {});
      return isMended ? log : undefined;
    });
    const rt = runtime();
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({ status: "blocked" });
    isMended = true;
    await rt.retry("r");
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({ output: "logged" });
  });

  test("a forgotten step that is done in time blocks the run, also in a replay", async () => {
    const journal = memoryJournal();
    const wf = flow(async (ctx) => {
      void ctx.step("log", async () => {});
      await ctx.step("reserve", () => sleep(20));
      await untilResumed(ctx);
    });
    await runtime(journal).execute(wf, input, { id: "r" });
    await resume(runtime(journal), "r");
    const outcome = await within(60_000, runtime(journal).run(wf, input, { id: "r" }));
    expect(messageOf(outcome)).toBe('ctx.step "log" was not awaited; await it in the body');
  });

  test("the body's own error is not replaced", async () => {
    const wf = flow(async (ctx) => {
      void ctx.step("log", async () => {});
      throw new Error("no stock");
    });
    expect(await within(60_000, runtime().execute(wf, input))).toMatchObject({
      ...{ status: "failed", error: { message: "no stock" } },
    });
  });

  test("a call that is awaited late, raced, caught or returned is awaited", async () => {
    const wf = flow(async (ctx) => {
      const late = ctx.step("late", async () => "late");
      void ctx.step("caught", async () => {}).catch(() => {});
      await Promise.race([ctx.sleep("limit", "1h"), ctx.step("raced", async () => {})]);
      await late;
      return ctx.step("returned", async () => "returned");
    });
    const outcome = await within(60_000, runtime().execute(wf, input));
    expect(outcome).toMatchObject({ status: "completed", output: "returned" });
  });
});

describe.concurrent("the loser of a race", () => {
  test("a step that has lost a race is recorded before the run ends", async () => {
    const rt = runtime();
    const aborted: boolean[] = [];
    const wf = flow(async (ctx) =>
      Promise.race([
        ctx.step("fast", async () => "fast"),
        ctx.step("slow", async ({ signal }) => {
          await sleep(50);
          aborted.push(signal.aborted);
          return "slow";
        }),
      ]),
    );
    const outcome = await within(60_000, rt.execute(wf, input, { id: "r" }));
    expect(outcome).toMatchObject({ status: "completed", output: "fast" });
    expect(aborted).toEqual([false]);
    const { records = [] } = (await rt.journal.show("r")) ?? {};
    expect(records.map(({ key, outcome: how }) => `${key} ${how}`)).toEqual(["fast ok", "slow ok"]);
  });

  test("the run is parked for a loser that waits for its retry, and ends after it", async () => {
    const journal = memoryJournal();
    const attempts: number[] = [];
    const retry = { base: 100, jitter: "none" } as const;
    const wf = flow(async (ctx) =>
      Promise.race([
        ctx.step("fast", async () => "fast"),
        ctx.step("slow", { retry }, async ({ attempt }) => {
          await sleep(5);
          attempts.push(attempt);
          if (attempt === 1) throw new Error("not yet");
        }),
      ]),
    );
    const first = await runtime(journal).execute(wf, input, { id: "r" });
    expect(first).toMatchObject({ status: "suspended", reason: "retry-delay" });
    const outcome = await within(60_000, runtime(journal).run(wf, input, { id: "r" }));
    expect(outcome).toMatchObject({ output: "fast" });
    expect(attempts).toEqual([1, 2]);
  });

  test("a sleep that has lost a race does not delay the end", async () => {
    const wf = flow(async (ctx) =>
      Promise.race([
        ctx.sleep("limit", "1h"),
        ctx.waitFor("paid", z.string()),
        ctx.step("fast", async () => "fast"),
      ]),
    );
    const outcome = await within(60_000, runtime().execute(wf, input));
    expect(outcome).toMatchObject({ status: "completed", output: "fast" });
  });

  test("a failure of the body aborts the steps in progress", async () => {
    let isAborted = false;
    const begun = Promise.withResolvers<void>();
    const wf = flow(async (ctx) => {
      const slow = ctx.step("slow", async (scope) => {
        begun.resolve();
        scope.signal.addEventListener("abort", () => {
          isAborted = true;
        });
        await hang(scope);
      });
      await Promise.race([slow, begun.promise]);
      throw new Error("no");
    });
    expect(await within(60_000, runtime().execute(wf, input))).toMatchObject({ status: "failed" });
    expect(isAborted).toBe(true);
  });
});

describe.concurrent("two calls of one name in parallel branches", () => {
  const pairs: readonly (readonly [string, Call])[] = [
    ["step", (ctx) => ctx.step("look", () => sleep(1))],
    ["step.map", (ctx) => ctx.step.map("look", [1], { keyOf: String }, async () => {})],
    ["child", (ctx) => ctx.child("look", leaf, input)],
  ];

  test.for(pairs)(
    "ctx.%s called twice with one name at the same time blocks the run",
    async ([, call]) => {
      const wf = flow(async (ctx) => Promise.all([call(ctx), call(ctx)]));
      const outcome = await within(60_000, runtime().execute(wf, input));
      const problem = 'two calls of the name "look" are in progress at the same time';
      expect(messageOf(outcome)).toContain(problem);
    },
  );

  test("the run is blocked though the code catches the error, and goes on with names of their own", async () => {
    const journal = memoryJournal();
    let isMended = false;
    const wf = flow(async (ctx) => {
      const look = (name: string) => ctx.step(isMended ? name : "look", async () => name);
      const both = await Promise.allSettled([look("look"), look("listen")]);
      return both.map(({ status }) => status);
    });
    const rt = runtime(journal);
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({ status: "blocked" });
    isMended = true;
    await rt.retry("r");
    const output = ["fulfilled", "fulfilled"];
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({ output });
  });

  test("steps of one name in parallel branches are told apart by their keys", async () => {
    const wf = flow(async (ctx) => {
      const look = (key: string) => ctx.step("look", { key }, async () => key);
      return Promise.all([look("a"), look("b")]);
    });
    expect(await runtime().execute(wf, input)).toMatchObject({ output: ["a", "b"] });
  });

  test("a name is free again when its call has failed", async () => {
    const wf = flow(async (ctx) => {
      const failing = async () => {
        throw new Error("no");
      };
      await ctx.step("look", { retry: false }, failing).catch(() => {});
      return ctx.step("look", async ({ key }) => key);
    });
    expect(await runtime().execute(wf, input)).toMatchObject({ output: "look#2" });
  });
});

/** Settles when the step is aborted. */
async function hang({ signal }: StepScope): Promise<never> {
  await until(() => signal.aborted);
  throw signal.reason;
}

const DEFINITION = { name: "w", version: 1, input: z.object({}) };

describe("a wrong argument is named, and shown with an example", () => {
  test.each([
    ["createRuntime without options", () => createRuntime(undefined as never), /needs a journal/],
    ["createRuntime without a journal", () => createRuntime({} as never), /needs a journal/],
    [
      "a runtime of a name",
      () => createRuntime({ journal: memoryJournal(), workflows: ["w"] as never }),
      /not the string "w"/,
    ],
    [
      "workflows that are no list",
      () => createRuntime({ journal: memoryJournal(), workflows: {} as never }),
      /workflows must be a list/,
    ],
    [
      "a runtime of stock",
      () => createRuntime({ journal: { claim() {}, decrement() {} } as never }),
      /needs a journal/,
    ],
    [
      "a priority that is a text",
      () => workflow({ ...DEFINITION, priority: "high" as never }, async () => 1),
      /priority must be/,
    ],
    [
      "a way of conflicts that does not exist",
      () => workflow({ ...DEFINITION, onConflict: "return_existing" as never }, async () => 1),
      'onConflict must be "reject" or "return-existing", not the string "return_existing"',
    ],
    [
      "a signal whose schema is a text",
      () => workflow({ ...DEFINITION, signals: { paid: "number" as never } }, async () => 1),
      'the schema of signal "paid" must be a schema of zod, valibot or arktype, not the string "number"',
    ],
    [
      "a schedule that is a pattern",
      () => workflow({ ...DEFINITION, schedule: "@daily" as never }, async () => 1),
      /schedule must be a Schedule/,
    ],
    [
      "a schedule without an input",
      () => new Schedule("@daily", undefined as never),
      /a schedule needs an input, such as/,
    ],
    [
      "a schedule that catches up in another way",
      () => new Schedule("@daily", { input: () => ({}), catchUp: "None" as never }),
      /catchUp must be "last", "all" or "none", not the string "None"/,
    ],
    [
      "a workflow without a body",
      () => workflow({ name: "w", version: 1, input: z.object({}) }, undefined as never),
      /workflow "w" has no body/,
    ],
  ])("%s", (_, call, message) => {
    expect(call).toThrow(TypeError);
    expect(call).toThrow(message);
  });

  test.each(["run", "execute", "start"] as const)(
    "%s takes a workflow, not its name",
    async (call) => {
      const calling = runtime()[call]("w" as never, input);
      await expect(calling).rejects.toThrow('made by workflow(…), and is not the string "w"');
    },
  );

  test("renew is true or false", async () => {
    const { locks } = await openMemory();
    const locking = locks.lock("a", { ttl: 1_000, wait: 0, renew: "no" as never });
    await expect(locking).rejects.toThrow('renew must be true or false, not the string "no"');
  });

  test("lockAll takes a list of names, not one name", async () => {
    const { locks } = await openMemory();
    const locking = locks.lockAll("abc" as never, { ttl: 1_000, wait: 0 });
    await expect(locking).rejects.toThrow('lockAll needs a list of names, not the string "abc"');
  });
});
