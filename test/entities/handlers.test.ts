import { describe, expect, test } from "vitest";
import { z } from "zod";
import { Codec } from "../../core/steps/codecs.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import { entity } from "../../core/steps/entity/entity.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { within } from "../support/until.ts";

const Count = z.object({ n: z.number(), list: z.array(z.string()).optional() });

describe.concurrent("a handler", () => {
  test("waits for newer code when its process cannot read the stored state", async () => {
    const journal = memoryJournal();
    const make = (state: typeof Count) =>
      entity({ name: "count", state, initial: { n: 0 } }, (on) => ({
        name: on(z.string(), async ({ state }, one) => ({ state: { ...state, list: [one] } })),
        inc: on(z.null(), async ({ state }) => ({ state: { ...state, n: state.n + 1 } })),
      }));
    const newer = make(Count);
    const older = make(z.strictObject({ n: z.number() }) as never);
    const runtimeOf = (one: typeof newer) => createRuntime({ journal, entities: [one] });
    const mine = runtimeOf(newer).entity(newer, "k");
    await mine.tell("inc", null, { operationId: "0" });
    await mine.call("name", "ann", { operationId: "1" });
    await mine.tell("inc", null, { operationId: "2" });
    expect(await runtimeOf(older).deliver()).toBe(0);
    const call = runtimeOf(older).entity(older, "k").call("inc", null, { operationId: "2" });
    await expect(call).rejects.toMatchObject({ code: "UNREADABLE_VALUE" });
    expect(await runtimeOf(newer).deliver()).toBe(1);
    expect(await mine.state()).toEqual({ n: 2, list: ["ann"] });
  });

  test("whose answer is recorded gives it although another operation waits for newer code", async () => {
    const journal = memoryJournal();
    const make = (state: z.ZodType<{ n: number }>) =>
      entity({ name: "sum", state, initial: { n: 0 } }, (on) => ({
        add: on(z.number(), async ({ state }, n) => ({
          state: { ...state, n: state.n + n },
          result: state.n + n,
        })),
      }));
    const older = make(z.strictObject({ n: z.number() }));
    const newer = make(z.object({ n: z.number(), unit: z.string().default("EUR") }));
    const [mine, theirs] = [older, newer].map((one) =>
      createRuntime({ journal, entities: [one] }).entity(one, "k"),
    );
    const add = (one: typeof mine, n: number) => one?.call("add", n, { operationId: `${n}` });
    expect(await add(mine, 1)).toBe(1);
    expect(await add(theirs, 2)).toBe(3);
    await expect(add(mine, 3)).rejects.toMatchObject({ code: "UNREADABLE_VALUE" });
    expect(await add(mine, 1)).toBe(1);
    expect(await add(theirs, 3)).toBe(6);
  });

  test("whose answer is new gives it although the next operation waits for a process with the codec", async () => {
    const journal = memoryJournal();
    const sum = entity({ name: "sum", state: z.number(), initial: 0 }, (on) => ({
      add: on(z.number(), async ({ state }, n) => ({ state: state + n, result: state + n })),
    }));
    const keys = { a: new Uint8Array(32) };
    const codec = Codec.encrypted({ keys, current: "a" });
    const mine = createRuntime({ journal }).entity(sum, "k");
    const theirs = createRuntime({ journal, codec }).entity(sum, "k");
    await mine.tell("add", 1, { operationId: "1" });
    await theirs.tell("add", 2, { operationId: "2" });
    expect(await mine.call("add", 1, { operationId: "1" })).toBe(1);
    expect(await theirs.call("add", 2, { operationId: "2" })).toBe(3);
  });

  test("that fails is reported with its key and attempt, also after a `tell`", async () => {
    const reported: unknown[] = [];
    const failing = entity(
      { name: "failing", state: z.null(), initial: null, retry: { attempts: 2, base: 1 } },
      (on) => ({
        bad: on(z.null(), async ({ attempt }) => {
          throw new Error(`attempt ${attempt}`);
        }),
      }),
    );
    const runtime = createRuntime({
      journal: memoryJournal(),
      entities: [failing],
      onError: (error, at) => reported.push([(error as Error).message, at]),
    });
    await runtime.entity(failing, "k").tell("bad", null, { operationId: "1" });
    expect(await runtime.deliver()).toBe(1);
    const at = (attempt: number) => ({
      ...{ runId: "entity/failing/k", workflow: "failing" },
      ...{ name: "bad", key: "1", attempt },
    });
    expect(reported).toEqual([1, 2].map((attempt) => [`attempt ${attempt}`, at(attempt)]));
  });

  test("that calls its own key fails with MISUSE, also through another key", async () => {
    let runtime: Runtime | undefined;
    const handle = (key: string) => (runtime as Runtime).entity(nested, key);
    const nested = entity({ name: "nested", state: z.number(), initial: 0 }, (on) => ({
      via: on(z.array(z.string()), async ({ state, operationId }, [next, ...rest]) => {
        if (next !== undefined) await callNext(next, rest, `${operationId}.`);
        return { state: state + 1 };
      }),
    }));
    async function callNext(next: string, rest: string[], operationId: string): Promise<void> {
      await handle(next).call("via", rest, { operationId });
    }
    runtime = createRuntime({ journal: memoryJournal() });
    const call = (via: string[], operationId: string) =>
      within(20_000, handle("a").call("via", via, { operationId }));
    await expect(call(["a"], "1")).rejects.toMatchObject({
      code: "MISUSE",
      message: expect.stringContaining("a handler of nested a calls its own key"),
    });
    await expect(call(["b", "a"], "2")).rejects.toMatchObject({ code: "MISUSE" });
    await call(["b", "c"], "3");
    expect(await handle("a").state()).toBe(1);
  });

  test("that does not settle in time is tried again, fails, and frees its key", async () => {
    const attempts: number[] = [];
    const hanging = entity(
      {
        ...{ name: "hanging", state: z.number(), initial: 0 },
        ...{ timeout: 30, retry: { attempts: 2, base: 1 } },
      },
      (on) => ({
        hang: on(z.null(), async ({ attempt, signal }) => {
          attempts.push(attempt);
          signal.addEventListener("abort", () => attempts.push(-attempt));
          return new Promise<never>(() => {});
        }),
        add: on(z.number(), async ({ state }, n) => ({ state: state + n, result: state + n })),
      }),
    );
    const mine = createRuntime({ journal: memoryJournal() }).entity(hanging, "k");
    const hang = within(20_000, mine.call("hang", null, { operationId: "1" }));
    const behind = within(20_000, mine.call("add", 2, { operationId: "2" }));
    await expect(hang).rejects.toMatchObject({
      code: "STEP_TIMEOUT",
      message: expect.stringContaining("took longer than 30 ms"),
    });
    expect(await behind).toBe(2);
    expect(attempts).toEqual([1, -1, 2, -2]);
  });

  test("has the attempts and pauses of entities where its policy names none", () => {
    const made = (retry: object) =>
      entity({ name: "own-policy", state: Count, initial: { n: 0 }, retry }, () => ({})).retry;
    const retryIf = () => true;
    expect(made({ retryIf, max: undefined })).toEqual({
      attempts: 5,
      base: 50,
      max: 1_000,
      retryIf,
    });
    expect(made({ attempts: 10 })).toEqual({ attempts: 10, base: 50, max: 1_000 });
  });

  test("that was too late has an older fence than the next operation of its key", async () => {
    const tokens: bigint[] = [];
    const lateEnd = Promise.withResolvers<void>();
    const slow = entity(
      {
        name: "slow",
        state: z.null(),
        initial: null,
        timeout: 30,
        retry: { attempts: 2, base: 1 },
      },
      (on) => ({
        late: on(z.boolean(), async ({ attempt, fence }, succeeds) => {
          tokens.push(fence.token);
          if (attempt === 1 || !succeeds) await lateEnd.promise;
          return {};
        }),
        next: on(z.null(), async ({ fence }) => {
          tokens.push(fence.token);
          return {};
        }),
      }),
    );
    const mine = createRuntime({ journal: memoryJournal() }).entity(slow, "k");
    for (const succeeds of [true, false]) {
      tokens.length = 0;
      const late = mine.call("late", succeeds, { operationId: `late: ${succeeds}` });
      const next = mine.call("next", null, { operationId: `next: ${succeeds}` });
      await within(20_000, Promise.allSettled([late, next]));
      const [first = 0n, second = 0n, third = 0n] = tokens;
      expect(tokens).toHaveLength(3);
      expect(second).toBe(first);
      expect(third).toBeGreaterThan(second);
    }
    lateEnd.resolve();
  });

  test("that fails after another operation was answered is reported, and is tried again", async () => {
    const journal = memoryJournal();
    const { entities } = journal;
    let commits = 0;
    const commit: typeof entities.commit = async (turn, change) => {
      commits += 1;
      if (commits === 2) throw new Error("the second commit");
      return entities.commit(turn, change);
    };
    const faulty = Object.assign(Object.create(journal), { entities: { ...entities, commit } });
    const reported: unknown[] = [];
    // Each operation has a commit of its own.
    const slow = entity({ name: "slow", state: z.number(), initial: 0 }, (on) => ({
      add: on(z.number(), async ({ state }, n) => {
        await new Promise((resolve) => setTimeout(resolve, 20));
        return { state: state + n };
      }),
    }));
    const runtime = createRuntime({
      journal: faulty,
      entities: [slow],
      onError: (error, { key }) => reported.push([(error as Error).message, key]),
    });
    const mine = runtime.entity(slow, "k");
    for (const n of [1, 2]) await mine.tell("add", n, { operationId: `${n}` });
    expect(await runtime.deliver()).toBe(2);
    expect(await mine.state()).toBe(3);
    expect(reported).toEqual([["the second commit", "2"]]);
  });

  test("that changes its state in place and returns none leaves the state", async () => {
    const list = entity({ name: "list", state: Count, initial: { n: 0 } }, (on) => ({
      set: on(z.number(), async ({ state }, n) => ({ state: { ...state, n } })),
      mutate: on(z.null(), async ({ state }) => {
        state.n = 999;
        return {};
      }),
    }));
    const mine = createRuntime({ journal: memoryJournal() }).entity(list, "k");
    await mine.call("mutate", null, { operationId: "1" });
    expect(await mine.state()).toEqual({ n: 0 });
    await mine.call("set", 5, { operationId: "2" });
    await mine.call("mutate", null, { operationId: "3" });
    expect(await mine.state()).toEqual({ n: 5 });
  });

  test("never sees what a reader did to the initial state", async () => {
    const any: z.ZodType<{ n: number }> = z.any();
    const fresh = entity({ name: "fresh", state: any, initial: { n: 0 } }, () => ({}));
    const runtime = createRuntime({ journal: memoryJournal() });
    const first = await runtime.entity(fresh, "a").state();
    first.n = 77;
    expect(await runtime.entity(fresh, "b").state()).toEqual({ n: 0 });
  });
});

test("an entity is refused whose state or handlers cannot work, by name", () => {
  const make = (state: unknown, add: unknown) => () =>
    entity({ name: "sum", state: state as z.ZodNumber, initial: 0 }, () => ({ add }) as never);
  const handle = async () => ({ state: 1 });
  const schema = "a schema of zod, valibot or arktype";
  expect(make(Number, undefined)).toThrow(`state must be ${schema}`);
  expect(make(z.number(), undefined)).toThrow(`the input of handler "add" must be ${schema}`);
  expect(make(z.number(), { input: Number, handle })).toThrow(`handler "add" must be ${schema}`);
  expect(make(z.number(), { input: z.number() })).toThrow('handler "add" must be a function');
  expect(make(z.number(), { input: z.number(), handle })().name).toBe("sum");
});
