import type { SQSEvent, SQSRecord } from "aws-lambda";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import {
  createRuntime,
  type Runtime,
  TerminalError,
  type WorkflowContext,
  workflow,
} from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { type PoisonMessage, queueHandler } from "../../functions/lambda/index.ts";
import {
  eventOf,
  failed,
  Order,
  orderQueue,
  orders,
  recordHooks,
  within,
} from "../support/queue-handlers.ts";
import { pause } from "../support/until.ts";

describe.concurrent("a queue handler", () => {
  test("executes one run per order, however often its message is delivered", async () => {
    const done: string[] = [];
    const { handler } = orderQueue(async (ctx, { orderId }) => {
      await ctx.step("note", async () => void done.push(orderId));
    });
    const event = eventOf(orders("1", "2", "1", "3"));
    // The second message for order 1 may have met the first one under way.
    for (let i = 0; i < 3; i += 1) await handler(event, within());
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(done.sort()).toEqual(["1", "2", "3"]);
  });

  test("executes one run per message for a workflow without run ids", async () => {
    let runs = 0;
    const body = (ctx: WorkflowContext) =>
      ctx.step("note", async () => {
        runs += 1;
      });
    const { handler } = orderQueue(body, {}, { id: false });
    const event = eventOf(orders("1", "1"));
    await handler(event, within());
    // Each delivery of a message has a receipt handle of its own.
    const again = event.Records.map((one) => ({ ...one, receiptHandle: `${one.receiptHandle}/2` }));
    await handler({ Records: again }, within());
    expect(runs).toBe(2);
  });

  test("retries only messages whose runs have not ended", async () => {
    const { handler, delays } = orderQueue(async (ctx, { orderId }) => {
      if (orderId === "2") await ctx.sleep("until tomorrow", "90s");
    });
    const event = eventOf(orders("1", "2", "3"));
    expect(await failed(event, handler(event, within()))).toEqual([1]);
    expect(delays).toMatchObject([{ orders: ["2"] }]);
    expect(delays[0]?.seconds).toBeGreaterThan(30);
    expect(delays[0]?.seconds).toBeLessThanOrEqual(91);
  });

  test("looks again within a minute at a run that waits for a signal or a child", async () => {
    const child = workflow({ name: "child", version: 1, input: z.object({}) }, (ctx) =>
      ctx.sleep("a day", "1d"),
    );
    const { handler, delays } = orderQueue(async (ctx, { orderId }) => {
      if (orderId === "child") await ctx.child("pack", child, {});
      else await ctx.waitFor("paid", z.object({}), { timeout: "30d" });
    });
    const event = eventOf(orders("signal", "child"), { receives: 60 });
    expect(await failed(event, handler(event, within()))).toEqual([0, 1]);
    expect(delays.flatMap((one) => one.orders).sort()).toEqual(["child", "signal"]);
    for (const { seconds } of delays) expect(seconds).toBeLessThanOrEqual(60);
  });

  test("looks less often at a run that waits for days, so that its message is not received 1,000 times", async () => {
    const { handler, delays } = orderQueue((ctx) => ctx.waitFor("paid", z.object({})));
    const looked = async (hours: number) => {
      const [record] = eventOf(orders("1")).Records as [SQSRecord];
      const SentTimestamp = String(Date.now() - hours * 3_600_000);
      const aged = { ...record, attributes: { ...record.attributes, SentTimestamp } };
      await handler({ Records: [aged] }, within());
      return delays.at(-1)?.seconds;
    };
    expect(await looked(5)).toBeGreaterThanOrEqual(1_800);
    expect(await looked(5)).toBeLessThan(1_860);
    expect(await looked(240)).toBe(3_600);
  });

  test("looks within a minute at a run of a FIFO queue that waits for a signal, and after its sleep at one that sleeps", async () => {
    for (const [waits, least, most] of [
      [(ctx: WorkflowContext) => ctx.waitFor("paid", z.object({})), 1, 60],
      [(ctx: WorkflowContext) => ctx.sleep("long", "5h"), 17_990, 18_010],
    ] as const) {
      const { handler, delays } = orderQueue(async (ctx) => void (await waits(ctx)));
      const event = eventOf(orders("1", "2"), { fifo: true });
      expect(await failed(event, handler(event, within()))).toEqual([0, 1]);
      expect(delays).toMatchObject([{ orders: ["1", "2"] }]);
      expect(delays[0]?.seconds).toBeGreaterThanOrEqual(least);
      expect(delays[0]?.seconds).toBeLessThanOrEqual(most);
    }
  });

  test("refuses a way to treat parked runs that does not exist", () => {
    const wf = workflow({ name: "w", version: 1, input: z.any() }, async () => 1);
    const runtime = createRuntime({ journal: memoryJournal() });
    expect(() => queueHandler(runtime, wf, { parked: "leve" as never })).toThrow(
      'parked must be "keep" or "leave", not the string "leve"',
    );
  });

  test("can leave parked runs to a sweep, except on FIFO queues", async () => {
    const body = async (ctx: WorkflowContext) => ctx.sleep("a while", "1h");
    const { handler } = orderQueue(body, { parked: "leave" });
    expect(await handler(eventOf(orders("1")), within())).toEqual({ batchItemFailures: [] });
    const event = eventOf(orders("2"), { fifo: true });
    expect(await failed(event, handler(event, within()))).toEqual([0]);
  });

  test("delays messages under contention by up to a minute, and never treats them as poison", async () => {
    const locks = memoryLocks();
    const { handler, delays, poison, events } = orderQueue(
      (ctx) => ctx.step("reserve", { lock: { names: "sku/a", onBusy: "suspend" } }, async () => 1),
      // The sweep would come later than the message.
      { parked: "leave" },
      { locks },
    );
    const held = await locks.lock("sku/a", { ttl: 60_000, wait: 0 });
    const event = eventOf(orders("1"), { receives: 60 });
    expect(await failed(event, handler(event, within()))).toEqual([0]);
    // Parked for a moment, it is not even asked for.
    expect(await failed(event, handler(event, within()))).toEqual([0]);
    expect(poison).toEqual([]);
    expect(events).toMatchObject([
      { type: "retry", reason: "busy" },
      { type: "retry", reason: "busy" },
    ]);
    for (const { seconds } of delays) {
      expect(seconds).toBeGreaterThanOrEqual(30);
      expect(seconds).toBeLessThanOrEqual(60);
    }
    await held.unlock();
    await pause(800);
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
  });

  test("retries a run that another process executes after a second", async () => {
    const [begun, going] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const { handler, delays } = orderQueue((ctx) =>
      ctx.step("slow", async () => {
        begun.resolve();
        await going.promise;
      }),
    );
    const event = eventOf(orders("1"));
    const first = handler(event, within());
    await begun.promise;
    expect(await failed(event, handler(event, within()))).toEqual([0]);
    expect(delays).toEqual([{ orders: ["1"], seconds: 1 }]);
    going.resolve();
    expect(await first).toEqual({ batchItemFailures: [] });
  });

  test("hands a failed run to the poison hook, and its message is done", async () => {
    let attempts = 0;
    const { handler, poison, codes } = orderQueue(async (ctx, { orderId }) => {
      if (orderId === "2") throw new TerminalError("SOLD_OUT");
      await ctx.step("fail", { retry: { attempts: 3, base: 1, max: 1 } }, async () => {
        attempts += 1;
        throw new Error("no");
      });
    });
    const event = eventOf(orders("1", "2"));
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(attempts).toBe(3);
    expect(codes().sort()).toEqual(["SOLD_OUT", "STEP_FAILED"]);
    expect(poison.map(({ record }) => record.messageId).sort()).toEqual(
      event.Records.map(({ messageId }) => messageId).sort(),
    );
  });

  test("hands over only the failures that isPoison selects", async () => {
    const poison: PoisonMessage[] = [];
    const isPoison = ({ code }: { readonly code?: string | undefined }) => code !== "SOLD_OUT";
    const { handler } = orderQueue(
      async (_, { orderId }) => {
        throw new TerminalError(orderId);
      },
      { poison: { to: async (one) => void poison.push(one), isPoison } },
    );
    const event = eventOf(orders("SOLD_OUT", "BROKEN"));
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(poison).toMatchObject([{ error: { code: "BROKEN" } }]);
  });

  test("treats invalid JSON, invalid input and a reused order id as poison at once", async () => {
    const { handler, codes, journal } = orderQueue(async () => {});
    const proto = '{"__proto__":{"polluted":1},"orderId":5}';
    const event = eventOf(["{", { amount: 1 }, proto, { orderId: "" }, ...orders("1")]);
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(codes().sort()).toEqual(["INVALID", "INVALID", "INVALID_MESSAGE", undefined]);
    const other = eventOf([{ orderId: "1", amount: 2 }]);
    expect(await handler(other, within())).toEqual({ batchItemFailures: [] });
    expect(codes().at(-1)).toBe("INPUT_CONFLICT");
    expect(await journal.list()).toHaveLength(1);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  test("treats a number that would be rounded as poison", async () => {
    const numbered = workflow(
      { name: "numbered", version: 1, input: z.object({ id: z.number() }), id: (o) => `${o.id}` },
      async () => 1,
    );
    const journal = memoryJournal();
    const recorded = recordHooks();
    const handler = queueHandler(createRuntime({ journal }), numbered, recorded.options);
    const event = eventOf(["9007199254740991", "9007199254740993"].map((id) => `{"id":${id}}`));
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(recorded.codes()).toEqual(["INVALID_MESSAGE"]);
    expect(await journal.list()).toHaveLength(1);
  });

  test("treats an input that is too large, and a key or a priority that no run can have, as poison", async () => {
    const definition = { version: 1, input: z.object({ text: z.string() }) };
    const workflows = [
      workflow({ name: "large", ...definition }, async () => 1),
      workflow({ name: "key", ...definition, key: () => 7 as never }, async () => 1),
      workflow({ name: "priority", ...definition, priority: () => "high" as never }, async () => 1),
    ];
    for (const [i, one] of workflows.entries()) {
      const recorded = recordHooks();
      const runtime = createRuntime({ journal: memoryJournal() });
      const handler = queueHandler(runtime, one, recorded.options);
      const event = eventOf([{ text: "x".repeat(i === 0 ? 2 ** 20 : 1) }]);
      expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
      expect(recorded.codes()).toEqual([i === 0 ? "TOO_LARGE" : undefined]);
    }
  });

  test("treats a failed run as poison when isPoison throws", async () => {
    const isPoison = () => {
      throw new Error("no decision");
    };
    const poison: PoisonMessage[] = [];
    const { handler } = orderQueue(
      async () => {
        throw new TerminalError("SOLD_OUT");
      },
      { poison: { to: async (one) => void poison.push(one), isPoison } },
    );
    expect(await handler(eventOf(orders("1")), within())).toEqual({ batchItemFailures: [] });
    expect(poison).toMatchObject([{ error: { message: "no decision" } }]);
  });

  test("retries poison that could not be handed over", async () => {
    const to = async () => {
      throw new Error("the other queue is away");
    };
    const { handler, events } = orderQueue(async () => {}, { poison: { to } });
    const event = eventOf(["{"]);
    expect(await failed(event, handler(event, within()))).toEqual([0]);
    expect(events.map(({ type }) => type)).toEqual(["poison", "hook-failed", "retry"]);
  });

  test("retries messages when the journal does not answer", async () => {
    const journal = memoryJournal();
    let away = true;
    const claim: typeof journal.claim = async (...args) => {
      if (away) throw new StoreUnavailableError("here", "away");
      return journal.claim(...args);
    };
    const wf = workflow(
      { name: "away", version: 1, input: Order, id: (o) => o.orderId },
      async () => 1,
    );
    const recorded = recordHooks();
    const open = async () => createRuntime({ journal: { ...journal, claim } });
    const handler = queueHandler(open, wf, recorded.options);
    const event = eventOf(orders("1", "2"));
    expect(await failed(event, handler(event, within()))).toEqual([0, 1]);
    expect(recorded.poison).toEqual([]);
    for (const problem of [new Error("no network"), new RangeError("connections must be 1 to 9")]) {
      const broken = queueHandler(() => Promise.reject(problem), wf, recorded.options);
      expect(await failed(event, broken(event, within()))).toEqual([0, 1]);
      expect(recorded.poison).toEqual([]);
    }
    away = false;
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
  });

  test("ignores errors of its listeners", async () => {
    const { handler } = orderQueue(
      async (ctx, { orderId }) => {
        if (orderId === "2") await ctx.sleep("a while", "1h");
      },
      {
        onEvent() {
          throw new Error("no log");
        },
        onOutcome: async () => Promise.reject(new Error("no log either")),
      },
    );
    const event = eventOf([...orders("1", "2", "3"), "{"]);
    expect(await failed(event, handler(event, within()))).toEqual([1]);
  });

  test("rejects an event of another source", async () => {
    const { handler } = orderQueue(async () => {});
    const eventSourceARN = "arn:aws:kinesis:eu-central-1:000000000000:stream/orders";
    const kinesis = { Records: [{ eventSourceARN, kinesis: { data: "" } }] };
    for (const event of [{}, { Records: [null] }, { Records: [{ Sns: {} }] }, kinesis] as never[]) {
      await expect(handler(event, within())).rejects.toThrow("the event is not from SQS");
    }
    expect(await handler({ Records: [] }, within())).toEqual({ batchItemFailures: [] });
  });
});

test("a queue handler with little time starts no work that cannot finish, and retries at once", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
  try {
    let begun = 0;
    const { handler, delays } = orderQueue(
      (ctx) =>
        ctx.step("work", async () => {
          begun += 1;
          await pause(2_700);
        }),
      { concurrency: 1, reserve: 500 },
    );
    const event = eventOf(orders("1", "2", "3", "4"));
    // 3,500 ms of work: the first one leaves less than a second.
    const first = failed(event, handler(event, within(4_000)));
    await vi.advanceTimersByTimeAsync(4_000);
    expect(await first).toEqual([1, 2, 3]);
    expect(begun).toBe(1);
    expect(delays).toEqual([{ orders: ["2", "3", "4"], seconds: 0 }]);
    expect(await failed(event, handler(event, within(0)))).toEqual([0, 1, 2, 3]);
    expect(begun).toBe(1);
  } finally {
    vi.useRealTimers();
  }
});

describe.concurrent("a queue handler with little time", () => {
  test("does not wait for hanging hooks", async () => {
    const hang = () => new Promise(() => {});
    const { handler } = orderQueue(
      async (ctx, { orderId }) => {
        if (orderId === "2") await ctx.sleep("a while", "1h");
      },
      { delay: hang, poison: { to: hang }, reserve: 2_500 },
    );
    const event = eventOf(["{", ...orders("1", "2")]);
    const context = within(5_500);
    expect(await failed(event, handler(event, context))).toEqual([0, 2]);
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
  });

  test("a function that is too short for any message does not use up its receives", async () => {
    const { handler, delays } = orderQueue(async () => {});
    for (const receives of [3, 10, 30]) {
      await handler(eventOf(orders("1"), { receives }), within(0));
    }
    expect(delays[0]?.seconds).toBe(0);
    for (const { seconds } of delays.slice(1)) expect(seconds).toBeGreaterThanOrEqual(30);
  });

  test("parks a run at the end, and another invocation resumes it", async () => {
    const steps: string[] = [];
    const { handler } = orderQueue(
      async (ctx) => {
        await ctx.step("one", async () => void steps.push("one"));
        await ctx.step("two", async ({ signal }) => {
          steps.push("two");
          if (steps.length < 3)
            await new Promise((_, reject) => {
              signal.addEventListener("abort", () => reject(signal.reason));
            });
        });
      },
      { reserve: 500 },
    );
    const event = eventOf(orders("1"));
    expect(await failed(event, handler(event, within(6_000)))).toEqual([0]);
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(steps).toEqual(["one", "two", "two"]);
  });

  test("does not wait for hanging work, and responds in time for the other messages", async () => {
    const { handler, runtime } = orderQueue(async () => {}, { reserve: 2_500 });
    const drive: Runtime["execute"] = (wf, input, options) =>
      (input as unknown as Order).orderId === "2"
        ? new Promise(() => {})
        : runtime.execute(wf, input, options);
    const wf = workflow(
      { name: "stuck", version: 1, input: Order, id: (o) => o.orderId },
      async () => 1,
    );
    const recorded = recordHooks();
    const stuck = queueHandler(
      { ...runtime, journal: runtime.journal, workflows: [], execute: drive },
      wf,
      {
        ...recorded.options,
        reserve: 2_500,
      },
    );
    const event = eventOf(orders("1", "2", "3"));
    const context = within(6_000);
    expect(await failed(event, stuck(event, context))).toEqual([1]);
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
    // It is still under way, so that nobody else is to begin it now.
    expect(recorded.delays).toEqual([]);
    await handler(event, within());
  });
});

describe("messages that an invocation has not finished", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
  });
  afterEach(() => void vi.useRealTimers());

  /** The run of each message ends, as failed, when its gate is opened. */
  async function hang(event: SQSEvent, concurrency: number) {
    const gates: (() => void)[] = [];
    const execute = (_: unknown, __: unknown, { id: runId }: { readonly id: string }) =>
      new Promise((resolve) => {
        const error = { name: "TypeError", message: "my bug" };
        gates.push(() => resolve({ runId, status: "failed", error, compensated: "yes" }));
      });
    const sell = workflow({ name: "sell", version: 1, input: Order }, async () => {});
    const { poison, delays, events, options } = recordHooks();
    const more = { ...options, concurrency, reserve: 300 };
    const handler = queueHandler((async () => ({ execute })) as never, sell, more);
    const batch = failed(event, handler(event, within(1_500)));
    await vi.advanceTimersByTimeAsync(1_500);
    const told = () =>
      events.map((one) => [
        event.Records.indexOf(one.record),
        one.type === "retry" ? one.reason : one.type,
      ]);
    return { batch: await batch, told, poison, delays, gates };
  }

  test("are told once: those that were under way, and those that never began and are retried at once", async () => {
    const { batch, told, poison, delays, gates } = await hang(eventOf(orders("1", "2", "3")), 2);
    expect(batch).toEqual([0, 1, 2]);
    const once = [
      [0, "error"],
      [1, "error"],
      [2, "unstarted"],
    ];
    expect(told()).toEqual(once);
    expect(delays).toEqual([{ orders: ["3"], seconds: 0 }]);
    // The environment is thawed. What the work has become, the next delivery finds in the journal.
    for (const open of gates) open();
    await vi.advanceTimersByTimeAsync(1);
    expect(gates).toHaveLength(2);
    expect(told()).toEqual(once);
    expect(poison).toEqual([]);
  });

  test("are told on a FIFO queue as behind the one under way, or as unstarted with their group", async () => {
    const groups = ["a", "a", "b", "b"];
    const event = eventOf(orders("a1", "a2", "b1", "b2"), { fifo: true, groups });
    const { batch, told, poison, gates } = await hang(event, 1);
    expect(batch).toEqual([0, 1, 2, 3]);
    const once = [
      [0, "error"],
      [1, "behind"],
      [2, "unstarted"],
      [3, "behind"],
    ];
    expect(told()).toEqual(once);
    for (const open of gates) open();
    await vi.advanceTimersByTimeAsync(1);
    expect(told()).toEqual(once);
    expect(poison).toEqual([]);
  });

  test("are told no more when they could not be handed over in time", async () => {
    const { promise, reject } = Promise.withResolvers<never>();
    const { events, options } = recordHooks();
    const hooks = { ...options, poison: { to: () => promise }, reserve: 300 };
    const sell = workflow({ name: "sell", version: 1, input: Order }, async () => {});
    const handler = queueHandler(createRuntime({ journal: memoryJournal() }), sell, hooks);
    const answer = handler(eventOf(["{"]), within(1_500));
    await vi.advanceTimersByTimeAsync(1_500);
    await answer;
    reject(new Error("no dead letters"));
    await vi.advanceTimersByTimeAsync(1);
    expect(events).toMatchObject([{ type: "poison" }, { type: "retry", reason: "error" }]);
    expect(events).toHaveLength(2);
  });
});

describe.concurrent("a FIFO queue", () => {
  test("stops a group at a retried message, and processes the other groups", async () => {
    const seen: string[] = [];
    const { handler, delays, events } = orderQueue(async (ctx, { orderId }) => {
      seen.push(orderId);
      if (orderId === "a2") await ctx.sleep("a while", "29500ms");
    });
    const event = eventOf(orders("a1", "b1", "a2", "b2", "a3", "b3"), {
      fifo: true,
      groups: ["a", "b"],
    });
    expect(await failed(event, handler(event, within()))).toEqual([2, 4]);
    expect(seen.filter((id) => id.startsWith("a"))).toEqual(["a1", "a2"]);
    expect(seen.filter((id) => id.startsWith("b"))).toEqual(["b1", "b2", "b3"]);
    // All of the group, or those that stay invisible would hold the first one back.
    expect(delays).toEqual([{ orders: ["a2", "a3"], seconds: expect.closeTo(30, -1) }]);
    expect(events.map((event) => event.type === "retry" && event.reason)).toEqual([
      "parked",
      "behind",
    ]);
    // Nothing of it is kept for the next event.
    seen.length = 0;
    const next = eventOf(orders("a4"), { fifo: true });
    expect(await handler(next, within())).toEqual({ batchItemFailures: [] });
  });

  test("keeps the order of a group, one message at a time", async () => {
    const seen: string[] = [];
    const { handler } = orderQueue(async (_, { orderId }) => {
      seen.push(`${orderId} begins`);
      await pause(5);
      seen.push(`${orderId} ends`);
    });
    const event = eventOf(orders("1", "2", "3"), { fifo: true });
    await handler(event, within());
    expect(seen).toEqual(["1", "2", "3"].flatMap((id) => [`${id} begins`, `${id} ends`]));
  });

  test("continues behind poison, whether it was handed over or is left to the redrive policy", async () => {
    const { handler } = orderQueue(async () => {});
    const event = eventOf([{ orderId: "1" }, "{", { orderId: "2" }], { fifo: true });
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    const seen: string[] = [];
    const runtime = createRuntime({ journal: memoryJournal() });
    const wf = workflow({ name: "no-poison", version: 1, input: Order }, async (_, { orderId }) =>
      seen.push(orderId),
    );
    const without = queueHandler(runtime, wf, {});
    expect(await failed(event, without(event, within()))).toEqual([1]);
    expect(seen).toEqual(["1", "2"]);
  });

  test("continues behind a run that is blocked by its crashes, and waits behind another blocked one", async () => {
    const journal = memoryJournal();
    const runtime = createRuntime({ journal });
    const sell = workflow(
      { name: "sell", version: 1, input: Order, id: ({ orderId }) => orderId, maxCrashes: 1 },
      async (ctx, { orderId }) => {
        if (orderId === "misusing") void ctx.step("not awaited", async () => {});
      },
    );
    const { poison, events, options } = recordHooks();
    const handler = queueHandler(runtime, sell, options);
    await runtime.start(sell, { orderId: "crashing" });
    await journal.take({ runId: "crashing", owner: "killed", ttl: 1 });
    await pause(10);
    const event = eventOf(orders("crashing", "behind"), { fifo: true });
    expect(await failed(event, handler(event, within()))).toEqual([]);
    expect(poison).toMatchObject([{ error: { code: "RUN_POISONED" } }]);
    expect(await journal.show("behind")).toMatchObject({ status: "completed" });

    const next = eventOf(orders("misusing", "waiting"), { fifo: true });
    expect(await failed(next, handler(next, within()))).toEqual([0, 1]);
    expect(events.slice(1)).toMatchObject([
      { type: "retry", reason: "error", error: { code: "MISUSE" } },
      { type: "retry", reason: "behind" },
    ]);
    expect(poison).toHaveLength(1);
  });

  test("is recognised by its name, because groups of a standard queue are for fairness only", async () => {
    const { handler } = orderQueue(async (ctx, { orderId }) => {
      if (orderId === "1") await ctx.sleep("a while", "29500ms");
    });
    const { Records } = eventOf(orders("1", "2"));
    const event = {
      Records: Records.map((record) => ({
        ...record,
        attributes: { ...record.attributes, MessageGroupId: "a" },
      })),
    };
    expect(await failed(event, handler(event, within()))).toEqual([0]);
  });
});
