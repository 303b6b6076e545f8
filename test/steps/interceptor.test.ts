import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import type { LockStore } from "../../core/lock/lock.ts";
import { createRuntime, type Interceptor, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";

type Hook = (about: unknown, body: () => Promise<never>) => Promise<never>;

const fault = () => new Error("a fault of the hook");

/** Hooks that break the contract. */
const HOOKS: Readonly<Record<string, Hook>> = {
  "throws before it calls its body": () => {
    throw fault();
  },
  "rejects once its body is done": (_, body) => body().then(() => Promise.reject(fault())),
  "calls its body twice": (_, body) => body().then(body),
  "never calls its body": async () => undefined as never,
  "does not await its body": async (_, body) => void body() as never,
  "returns another result": (_, body) => body().then(() => "another result" as never),
};

/** Executes a run with a step that fails once, and with an undo of it because the run fails. */
async function execute(interceptor: Interceptor) {
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
  const outcome = await createRuntime({ ...options, interceptor }).execute(order, "", { id: "r" });
  return { outcome, done };
}

test.each(Object.entries(HOOKS))("a hook that %s does not change the run", async (_, hook) => {
  const expected = await execute({});
  expect(expected.done).toEqual(["attempt 1", "attempt 2", "undo"]);
  expect(await execute({ step: hook })).toEqual(expected);
  expect(await execute({ run: hook })).toEqual(expected);
});

test("a hook may be a method", async () => {
  const names: string[] = [];
  class Naming {
    readonly #names = names;

    step(...[{ name }, body]: Parameters<NonNullable<Interceptor["step"]>>) {
      this.#names.push(name);
      return body();
    }
  }
  await execute(new Naming());
  expect(names).toEqual(["act", "act", "act"]);
});

test("a listener that throws does not stop the run", async () => {
  const onEvent = () => {
    throw fault();
  };
  const greet = workflow({ name: "greet", version: 1, input: z.string() }, (ctx, name) =>
    ctx.step("say", async () => `hello ${name}`),
  );
  const runtime = createRuntime({ journal: memoryJournal(), onEvent });
  expect(await runtime.execute(greet, "you", { id: "r" })).toMatchObject({ output: "hello you" });
});

test("a step is recorded although the clock was set back during it", async () => {
  const now = Date.now.bind(Date);
  const clock = vi.spyOn(Date, "now");
  onTestFinished(() => clock.mockRestore());
  const store = memoryLocks();
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
  expect(await runtime.execute(locked, "", { id: "r" })).toMatchObject({ status: "completed" });
  expect(calls).toBe(1);
});
