import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { memoryJournal } from "../../core/journal/memory.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { type Around, createRuntime, workflow } from "../../core/steps/index.ts";
import { memoryStore } from "../../core/stores/memory/index.ts";

type Hook = (about: unknown, body: () => Promise<never>) => Promise<never>;

const fault = () => new Error("a fault of the hook's own");

/** What no hook should do. */
const HOOKS: Readonly<Record<string, Hook>> = {
  "throws before it calls its body": () => {
    throw fault();
  },
  "rejects once its body is done": (_, body) => body().then(() => Promise.reject(fault())),
  "calls its body twice": (_, body) => body().then(body),
  "never calls its body": async () => undefined as never,
  "does not wait for its body": async (_, body) => void body() as never,
  "answers something else": (_, body) => body().then(() => "something else" as never),
};

/** A step that fails at first, then its undo, since the run fails as well. */
async function drive(around: Around) {
  const done: string[] = [];
  const options = { journal: memoryJournal(), skipPauses: true };
  const order = workflow({ name: "order", version: 1, input: z.string() }, async (ctx) => {
    const act = async ({ attempt }: { readonly attempt: number }) => {
      done.push(`attempt ${attempt}`);
      if (attempt === 1) throw new Error("not yet");
    };
    await ctx.step("act", {}, act, async () => void done.push("undo"));
    throw new Error("failed in the end");
  });
  const outcome = await createRuntime({ ...options, around }).drive(order, "", { id: "r" });
  return { outcome, done };
}

test.each(Object.entries(HOOKS))("a hook that %s changes nothing", async (_, hook) => {
  const expected = await drive({});
  expect(expected.done).toEqual(["attempt 1", "attempt 2", "undo"]);
  expect(await drive({ step: hook })).toEqual(expected);
  expect(await drive({ run: hook })).toEqual(expected);
});

test("a hook may be a method", async () => {
  const names: string[] = [];
  class Naming {
    readonly #names = names;

    step(...[{ name }, body]: Parameters<NonNullable<Around["step"]>>) {
      this.#names.push(name);
      return body();
    }
  }
  await drive(new Naming());
  expect(names).toEqual(["act", "act", "act"]);
});

test("a listener that throws does not keep a run from its end", async () => {
  const onEvent = () => {
    throw fault();
  };
  const greet = workflow({ name: "greet", version: 1, input: z.string() }, (ctx, name) =>
    ctx.step("say", async () => `hello ${name}`),
  );
  const runtime = createRuntime({ journal: memoryJournal(), onEvent });
  expect(await runtime.drive(greet, "you", { id: "r" })).toMatchObject({ output: "hello you" });
});

test("a clock that is set back during a step does not keep it from being recorded", async () => {
  const now = Date.now.bind(Date);
  const clock = vi.spyOn(Date, "now");
  onTestFinished(() => clock.mockRestore());
  const store = memoryStore();
  const lockAll: LockStore["lockAll"] = async (names, options) => {
    const held = await store.lockAll(names, options);
    clock.mockImplementation(() => now() + 500);
    return held;
  };
  const locks = { ...store, traits: store.traits, lockAll } as LockStore;
  let calls = 0;
  const locked = workflow({ name: "locked", version: 1, input: z.string() }, (ctx) =>
    ctx.step("act", { lock: "a" }, async () => {
      calls += 1;
      clock.mockImplementation(now);
    }),
  );
  const runtime = createRuntime({ journal: memoryJournal(), locks });
  expect(await runtime.drive(locked, "", { id: "r" })).toMatchObject({ status: "completed" });
  expect(calls).toBe(1);
});
