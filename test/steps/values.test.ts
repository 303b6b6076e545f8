import { describe, expect, test } from "vitest";
import { createRuntime } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { flow } from "../support/flow.ts";

const input = { n: 1 };

/** Executes a step with this result, and returns the result in a replay by another process. */
async function replayed(value: unknown): Promise<unknown> {
  const journal = memoryJournal();
  const seen: unknown[] = [];
  const wf = flow(async (ctx) => {
    seen.push(await ctx.step("a", async () => value));
    await ctx.sleep("nap", "1h");
  });
  const first = await createRuntime({ journal }).execute(wf, input, { id: "r" });
  expect(first).toMatchObject({ status: "suspended" });
  await journal.signal("r", { name: "wake", dedupeId: "1", payload: '{"json":1}' });
  await createRuntime({ journal }).execute(wf, input, { id: "r" });
  expect(seen).toHaveLength(2);
  return seen[1];
}

class Row {
  readonly sku = "a";
  readonly at = new Date(5);
}

class Money {
  readonly cents = 5;
  format() {
    return `${this.cents}`;
  }
}

describe.concurrent("a result of a step", () => {
  test.for<readonly [string, () => unknown]>([
    ["a Buffer", () => Buffer.from("receipt")],
    ["a part of a larger Buffer", () => Buffer.from("receipt").subarray(2, 4)],
    ["an ArrayBuffer", () => new Uint8Array([1, 2, 255]).buffer],
    ["numbers in a typed array", () => ({ list: new Float64Array([0.5, -1]) })],
    ["bytes of 300 kB", () => new Uint8Array(300_000).fill(7)],
    [
      "dates, bigints, maps, sets and NaN",
      () => [new Date(5), 5n, new Map([[1, new Set(["a"])]]), Number.NaN],
    ],
    [
      "an object with a key named constructor",
      () => ({ constructor: 1, prototype: { a: new Date(1) } }),
    ],
    ["an object with a key named __proto__", () => JSON.parse('{"__proto__":{"a":1}}')],
    ["undefined", () => undefined],
  ])("may be %s", async ([, make]) => {
    expect(await replayed(make())).toStrictEqual(make());
  });

  test("may be an error with its cause, or several errors", async () => {
    const cause = Object.assign(new RangeError("too far"), { code: "FAR" });
    const many = new AggregateError([cause, new Error("second")], "both", { cause });
    const copy = (await replayed({ many })) as { many: AggregateError };
    expect(copy.many).toBeInstanceOf(AggregateError);
    expect(copy.many.cause).toBeInstanceOf(RangeError);
    expect(copy.many.cause).toMatchObject({ message: "too far", code: "FAR" });
    expect(copy.many.errors.map(({ message }: Error) => message)).toEqual(["too far", "second"]);
  });

  test("may be an error with members of its own", async () => {
    const make = () =>
      Object.assign(new Error("not found"), {
        ...{ status: 404, code: 5, headers: new Map([["a", new Date(1)]]), toString: "no method" },
      });
    const copy = (await replayed(make())) as Error;
    expect(Object.entries(copy)).toStrictEqual(Object.entries(make()));
    expect(copy).toMatchObject({ name: "Error", message: "not found" });
  });

  test("may be a row of a database, whose class has no methods", async () => {
    expect(await replayed([new Row()])).toStrictEqual([{ sku: "a", at: new Date(5) }]);
  });

  test("may contain itself", async () => {
    const value: { self?: unknown } = {};
    value.self = value;
    const copy = (await replayed(value)) as { self: unknown };
    expect(copy.self).toBe(copy);
  });

  test.for<readonly [string, () => unknown, string]>([
    ["a Response", () => ({ receipt: new Response("x") }), "at .receipt: an instance of Response"],
    ["an invalid date", () => [{ at: new Date("no") }], "at [0].at: an invalid date"],
    ["a function", () => ({ a: { b: () => {} } }), "at .a.b: a function"],
    ["a symbol", () => Symbol("s"), "a symbol cannot be stored"],
    [
      "a promise",
      () => [Promise.resolve(1)],
      "at [0]: an instance of Promise cannot be stored; await it",
    ],
    [
      "an instance with methods",
      () => new Map([["price", new Money()]]),
      "at .get(price): an instance of Money",
    ],
    [
      "an instance with methods in an error",
      () => new Error("no", { cause: new Money() }),
      "at .cause: an instance",
    ],
    [
      "a member of an error with methods",
      () => [Object.assign(new Error("no"), { response: new Response("x") })],
      "at [0].response: an instance of Response",
    ],
  ])("that is %s is refused by its path, and the step is undone", async ([, make, message]) => {
    const rt = createRuntime({ journal: memoryJournal() });
    const undone: unknown[] = [];
    let times = 0;
    const wf = flow(async (ctx) => {
      await ctx.step(
        "charge",
        async () => {
          times += 1;
          return make();
        },
        async (_, { outcome }) => undone.push(outcome),
      );
    });
    const outcome = await rt.execute(wf, input);
    expect(outcome).toMatchObject({
      ...{ status: "failed", compensated: "yes", error: { code: "INVALID" } },
    });
    const { message: told } = (outcome as { error: Error }).error;
    expect(told).toContain("the result of charge");
    expect(told).toContain(message);
    expect(undone).toEqual(["unknown"]);
    expect(times).toBe(1);
  });
});

test("a run is blocked while a process cannot decode a value of its journal", async () => {
  const journal = memoryJournal();
  const rt = createRuntime({ journal });
  const wf = flow(async (ctx) => ctx.step("a", async () => 1));
  await rt.start(wf, input, { id: "r" });
  const taken = await journal.take({ runId: "r", owner: "a newer version", ttl: 1 });
  if (taken.kind !== "claimed") throw new Error("not claimed");
  const run = { runId: "r", epoch: taken.epoch };
  const record = { key: "a", kind: "step", outcome: "ok", attempt: 1, value: "sealed" } as const;
  await journal.append(run, record);
  await journal.park(run, { reason: "deadline", wakeIn: 0, signalsSeen: 0 });
  expect(await rt.resume("r")).toMatchObject({
    ...{ status: "blocked", error: { code: "UNREADABLE_VALUE" }, retryIn: 5_000 },
  });
});
