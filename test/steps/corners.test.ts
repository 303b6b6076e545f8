import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { memoryJournal } from "../../core/journal/memory.ts";
import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import { deadlineIn } from "../../core/lock/time.ts";
import { createRuntime, type RuntimeOptions, TerminalError } from "../../core/steps/index.ts";
import { pointed } from "../../core/steps/testing.ts";
import { memoryStore } from "../../core/stores/memory/index.ts";
import { flow } from "../conformance/steps.ts";
import { until, within } from "../support/until.ts";

const input = { n: 1 };

function runtime(options: Partial<RuntimeOptions> = {}) {
  return createRuntime({ journal: memoryJournal(), inlineWait: 5, ...options });
}

/** What a step may throw that is no proper error. */
const THROWN: readonly (readonly [string, () => unknown])[] = [
  ["undefined", () => undefined],
  ["a text", () => "no"],
  ["an object without a prototype", () => Object.create(null)],
  ["a symbol", () => Symbol("no")],
  ["a frozen error", () => Object.freeze(new Error("no"))],
  ["an error that throws itself", () => hostile()],
  ["an error whose data cannot be kept", () => new TerminalError("NO", "no", { data: opaque() })],
  ["an error without a message", () => Object.assign(new Error(), { message: undefined })],
  ["an error with a name without end", () => Object.assign(new Error(), { name: LONG })],
];

const LONG = "x".repeat(2_000_000);

function hostile(): Error {
  const get = () => {
    throw new Error("from a getter");
  };
  return Object.defineProperty(new Error("no"), "message", { get });
}

/** What no journal can keep. */
function opaque(): unknown {
  return { constructor: 1 };
}

class Amount {
  readonly cents = 5n;
}

describe.concurrent("a workflow's corners", () => {
  test.for(THROWN)("a step that throws %s fails", async ([, make]) => {
    const rt = runtime();
    const wf = flow(async (ctx) => {
      const throwing = async () => {
        throw make();
      };
      await ctx.step("a", { retry: false }, throwing).catch(() => {});
      await ctx.step("b", async () => {});
      await ctx.sleep("nap", 100);
      throw make();
    });
    await within(5_000, rt.drive(wf, input, { id: "r" }));
    const outcome = await within(5_000, rt.run(wf, input, { id: "r" }));
    expect(outcome).toMatchObject({ status: "failed" });
    expect(outcome).not.toMatchObject({ error: { code: "NON_DETERMINISM" } });
    const records = (await rt.journal.show("r"))?.records ?? [];
    expect(records.map(({ key, outcome: how }) => `${key} ${how}`)).toContain("a failed");
  });

  test.for<readonly [string, () => unknown]>([
    ["a bigint inside of a class", () => new Amount()],
    ["a key that could change prototypes", opaque],
    ["something nested too deeply", () => nested(20_000)],
  ])("%s is no result, and is not asked for again", async ([, make]) => {
    const rt = runtime();
    let times = 0;
    const wf = flow(async (ctx) =>
      ctx.step("a", { retry: { base: 0 } }, async () => {
        times += 1;
        return make();
      }),
    );
    expect(await rt.drive(wf, input)).toMatchObject({
      status: "failed",
      error: { code: "INVALID" },
    });
    expect(times).toBe(1);
  });

  test.for<readonly [string, object]>([
    [
      "asks whether to try again",
      {
        retryIf() {
          throw new Error("no idea");
        },
      },
    ],
    ["has a pause that is none", { base: "soon" }],
    ["has a pause that is none, from its question", { retryIf: () => ({ after: "soon" }) }],
  ])("a policy that fails when it %s fails the step for good", async ([, retry]) => {
    const rt = runtime();
    const wf = flow(async (ctx) => {
      const failing = async () => {
        throw new Error("no");
      };
      await ctx.step("a", { retry }, failing).catch(() => {});
      await ctx.step("b", async () => {});
      await ctx.sleep("nap", 100);
      return "end";
    });
    await rt.drive(wf, input, { id: "r" });
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: "end" });
  });

  test("an undo whose policy fails is told, and the others are undone all the same", async () => {
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
    expect(await rt.drive(wf, input)).toMatchObject({ status: "failed", compensated: false });
    expect(undone).toEqual(["b", "a"]);
  });

  test("a patch may be asked for again, and stays what it was", async () => {
    const rt = runtime();
    let isNew = false;
    const wf = flow(async (ctx) => {
      await ctx.step("a", async () => {});
      const first = isNew && (await ctx.patched("p"));
      await ctx.sleep("nap", 100);
      return [first, isNew && (await ctx.patched("p")), isNew && (await ctx.patched("p"))];
    });
    await rt.drive(wf, input, { id: "old" });
    isNew = true;
    await rt.drive(wf, input, { id: "new" });
    expect(await rt.run(wf, input, { id: "old" })).toMatchObject({ output: [false, false, false] });
    expect(await rt.run(wf, input, { id: "new" })).toMatchObject({ output: [true, true, true] });
  });

  test("signals and patches may be called like the attempts of a step", async () => {
    const rt = runtime();
    const wf = flow(async (ctx) => {
      const answer = await ctx.waitFor("invoice@2024", z.string());
      await ctx.patched("issue@7 started");
      await ctx.sleep("nap", 100);
      return ctx.step("end", async () => answer);
    });
    await rt.start(wf, input, { id: "r" });
    await rt.signal("r", "invoice@2024", "paid", { dedupeId: "a" });
    await rt.drive(wf, input, { id: "r" });
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: "paid" });
  });

  test("a signal too large to be written down with its id fails its wait, not the run's driver", async () => {
    const rt = runtime();
    const wf = flow(async (ctx) =>
      ctx.waitFor("big", z.string()).catch(({ code }: { code: string }) => code),
    );
    await rt.start(wf, input, { id: "r" });
    await rt.signal("r", "big", "x".repeat(1_048_576 - 20), { dedupeId: "a" });
    expect(await rt.drive(wf, input, { id: "r" })).toMatchObject({ output: "TOO_LARGE" });
  });

  test("a run that waits for a signal is given up when its time is over", async () => {
    const rt = runtime();
    const wf = flow(async (ctx) => ctx.waitFor("never", z.string()), { timeout: 60 });
    expect(await rt.drive(wf, input, { id: "r" })).toMatchObject({ status: "suspended" });
    const keys = [{ workflow: wf.name, version: 1 }];
    await until(async () => (await rt.journal.due({ workflows: keys, limit: 1 })).length > 0);
    const outcome = await rt.drive(wf, input, { id: "r" });
    expect(outcome).toMatchObject({ status: "failed", error: { code: "RUN_TIMEOUT" } });
  });

  test("a run is not held by what its workflow awaits besides when its time is over", async () => {
    const rt = runtime();
    const wf = flow(async () => new Promise(() => {}));
    const outcome = await within(5_000, rt.drive(wf, input, { deadline: deadlineIn(50) }));
    expect(outcome).toMatchObject({ status: "suspended", reason: "deadline" });
  });

  test("a run that is lost is not held by what its workflow awaits besides", async () => {
    let isCut = false;
    const journal = pointed(memoryJournal(), (point) => {
      if (isCut && point === "renew:before") throw new StoreUnavailableError("memory:", "cut off");
    });
    const rt = runtime({ journal, lease: 150 });
    const wf = flow(async () => {
      isCut = true;
      await new Promise(() => {});
    });
    expect(await within(5_000, rt.drive(wf, input))).toMatchObject({ status: "busy" });
  });

  test("a step is not begun by a process that was frozen for longer than it had the run", async () => {
    let begun = false;
    const journal = pointed(memoryJournal(), (point) => {
      if (point === "append:after") freeze(700);
    });
    const rt = runtime({ journal, lease: 500 });
    const wf = flow(async (ctx) =>
      ctx.step("charge", { semantics: "at-most-once" }, async () => {
        begun = true;
      }),
    );
    expect(await rt.drive(wf, input)).toMatchObject({ status: "busy" });
    expect(begun).toBe(false);
  });

  test("an input is the same however its parts are shared, and in whatever order they stand", async () => {
    const rt = runtime();
    const wf = flow(async () => 1, {
      input: z.object({ n: z.number(), from: z.any(), to: z.any() }) as never,
    });
    const here = { city: "Ulm" };
    await rt.drive(wf, { n: 1, from: here, to: here } as never, { id: "r" });
    const again = { to: { city: "Ulm" }, from: { city: "Ulm" }, n: 1 };
    expect(await rt.drive(wf, again as never, { id: "r" })).toMatchObject({ output: 1 });
  });
});

describe.concurrent("locks of a step", () => {
  test("its fence is the one of the name that was given first", async () => {
    const rt = runtime({ locks: memoryStore() });
    const wf = flow(async (ctx) =>
      ctx.step("a", { lock: ["z", "b"] }, async ({ fence }) => fence.resource),
    );
    expect(await rt.drive(wf, input)).toMatchObject({ output: "z" });
  });

  test.for([
    ["whose answer was lost", () => new UnknownOutcomeError("memory:", "it was locked")],
    ["that is away", () => new StoreUnavailableError("memory:", "away")],
  ] as const)("a store %s costs no attempt", async ([, make]) => {
    let calls = 0;
    const locks = pointed(memoryStore(), (point) => {
      if (point === "lockAll:before" && ++calls === 1) throw make();
    });
    const rt = runtime({ locks });
    const wf = flow(async (ctx) =>
      ctx.step("a", { lock: "x", retry: false }, async ({ attempt }) => attempt),
    );
    const outcome = await rt.drive(wf, input, { id: "r" });
    expect(outcome).toMatchObject({ status: "suspended", reason: "lock-busy" });
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: 1 });
  });

  test("standing in line for one does not use up what the step needs", async () => {
    const locks = memoryStore();
    const held = await locks.lock("x", { ttl: 10_000, wait: 0 });
    const rt = runtime({ locks });
    let begun = false;
    const wf = flow(async (ctx) =>
      ctx.step("a", { lock: "x", budget: 200 }, async () => {
        begun = true;
      }),
    );
    setTimeout(() => void held.unlock(), 150);
    const outcome = await rt.drive(wf, input, { deadline: deadlineIn(300) });
    expect(outcome.status).toBe("suspended");
    expect(begun).toBe(false);
  });
});

describe.concurrent("a child", () => {
  test("that cannot be begun fails as a step does, and does so again", async () => {
    const rt = runtime();
    const child = flow(async () => 1);
    const wf = flow(async (ctx) => {
      const bad = { n: "one" } as never;
      const code = await ctx.child("a", child, bad).catch((error: { code: string }) => error.code);
      await ctx.step("b", async () => {});
      await ctx.sleep("nap", 100);
      return code;
    });
    await rt.drive(wf, input, { id: "r" });
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: "INVALID" });
  });

  test("whose id is another run's fails as a step does, and does so again", async () => {
    const rt = runtime();
    const child = flow(async () => 1);
    await rt.drive(child, { n: 5 }, { id: "taken" });
    const wf = flow(async (ctx) => {
      const options = { id: "taken" };
      const code = await ctx
        .child("a", child, input, options)
        .catch((error: { code: string }) => error.code);
      await ctx.step("b", async () => {});
      await ctx.sleep("nap", 100);
      return code;
    });
    await rt.drive(wf, input, { id: "r" });
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: "INPUT_CONFLICT" });
  });

  test("whose journal is away does not fail its parent", async () => {
    let cuts = 0;
    const journal = pointed(memoryJournal(), (point) => {
      const isFirst = point === "finish:before" && ++cuts === 1;
      if (isFirst) throw new StoreUnavailableError("memory:", "cut off");
    });
    const rt = runtime({ journal, lease: 100 });
    const child = flow(async () => "grown");
    const wf = flow(async (ctx) => ctx.child("a", child, input));
    const away = { code: "STORE_UNAVAILABLE" };
    await expect(rt.drive(wf, input, { id: "r" })).rejects.toMatchObject(away);
    expect(await rt.run(wf, input, { id: "r" })).toMatchObject({ output: "grown" });
  });

  test("is not begun again when its parent looks after its outcome is forgotten", async () => {
    const rt = runtime();
    let times = 0;
    const child = flow(
      async (ctx) => {
        await ctx.waitFor("go", z.boolean());
        return ++times;
      },
      { keep: 10 },
    );
    const wf = flow(async (ctx) => ctx.child("a", child, input));
    await rt.drive(wf, input, { id: "r" });
    await rt.signal("r/a", "go", true, { dedupeId: "a" });
    expect(await rt.resume("r/a")).toMatchObject({ output: 1 });
    await sleep(30);
    expect(await rt.resume("r")).toMatchObject({ status: "completed", output: 1 });
    expect(times).toBe(1);
  });

  test("of a run with a long id has an id as well", async () => {
    const rt = runtime();
    const child = flow(async () => "grown");
    const wf = flow(async (ctx) => ctx.child("a", child, input));
    expect(await rt.drive(wf, input, { id: "r".repeat(255) })).toMatchObject({ output: "grown" });
  });

  test("that was cancelled does not make its parent a cancelled run", async () => {
    const rt = runtime();
    const child = flow(async (ctx) => ctx.waitFor("go", z.boolean()));
    const wf = flow(async (ctx) => ctx.child("a", child, input));
    await rt.drive(wf, input, { id: "r" });
    await rt.cancel("r/a");
    await rt.resume("r/a");
    await rt.resume("r");
    expect((await rt.journal.show("r"))?.status).toBe("failed");
  });
});

/** No timer fires meanwhile. */
function freeze(millis: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, millis);
}

function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < depth; level += 1) value = [value];
  return value;
}
