import type { SQSEvent, SQSRecord } from "aws-lambda";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Inventory } from "../../core/inventory/inventory.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sqlInventory } from "../../core/inventory/sql.ts";
import { memoryJournal } from "../../core/journal/index.ts";
import { FencedOutError, StoreUnavailableError } from "../../core/lock/errors.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import {
  createRuntime,
  type Runtime,
  TerminalError,
  type WorkflowContext,
  workflow,
} from "../../core/steps/index.ts";
import { memoryStore } from "../../core/stores/memory/index.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import {
  type Poison,
  type QueueEvent,
  type QueueOptions,
  queueHandler,
  type StockAnswer,
  type StockOptions,
  stockHandler,
} from "../../functions/lambda/index.ts";
import { migrate } from "../../infra/migrate.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { pause } from "../support/until.ts";

const Order = z.object({ orderId: z.string(), amount: z.number().default(1) });
type Order = z.infer<typeof Order>;

/** A context of Lambda with so much time left. */
function within(millis = 20_000) {
  const endsAt = Date.now() + millis;
  return { getRemainingTimeInMillis: () => Math.max(0, endsAt - Date.now()) };
}

/** An event with these bodies, as a queue delivers them. */
function eventOf(
  bodies: readonly unknown[],
  { fifo = false, groups = ["a"], receives = 1 } = {},
): SQSEvent {
  const queue = new Queue({ name: fifo ? "orders.fifo" : "orders", visibility: 0 });
  for (const [i, body] of bodies.entries()) {
    queue.send(body, fifo ? { group: groups[i % groups.length] } : {});
  }
  for (let i = 1; i < receives; i += 1) queue.receive(bodies.length);
  return { Records: [...queue.receive(bodies.length)] };
}

/** The positions of the messages that come again. */
async function failed(
  event: SQSEvent,
  answer: Promise<{ batchItemFailures: { itemIdentifier: string }[] }>,
) {
  const ids = new Set((await answer).batchItemFailures.map(({ itemIdentifier }) => itemIdentifier));
  return event.Records.flatMap(({ messageId }, i) => (ids.has(messageId) ? [i] : []));
}

/** What the hooks of a handler were told. */
function listening() {
  const delays: { orders: readonly string[]; seconds: number }[] = [];
  const poison: Poison[] = [];
  const events: QueueEvent[] = [];
  const orderOf = ({ body }: SQSRecord) => body.match(/"orderId":"(.*?)"/)?.[1] ?? body;
  return {
    delays,
    poison,
    events,
    codes: () => poison.map(({ error }) => (error as { code?: string }).code),
    options: {
      delay: async (records: readonly SQSRecord[], seconds: number) => {
        delays.push({ orders: records.map(orderOf), seconds });
      },
      poison: { to: async (one: Poison) => void poison.push(one) },
      onEvent: (event: QueueEvent) => void events.push(event),
    },
  };
}

let count = 0;

/** A queue of orders whose workflow is `body`. */
function ordering(
  body: (ctx: WorkflowContext, order: Order) => Promise<unknown>,
  options: QueueOptions<z.input<typeof Order>> = {},
  more: { locks?: LockStore; id?: boolean } = {},
) {
  const journal = memoryJournal();
  const runtime = createRuntime({ journal, locks: more.locks, inlineWait: 10, lease: 10_000 });
  count += 1;
  const definition = { name: `orders-${count}`, version: 1, input: Order };
  const named = more.id === false ? {} : { id: ({ orderId }: Order) => orderId };
  const heard = listening();
  const handler = queueHandler(runtime, workflow({ ...definition, ...named }, body), {
    ...heard.options,
    ...options,
  });
  return { ...heard, journal, runtime, handler };
}

const orders = (...ids: readonly string[]) => ids.map((orderId) => ({ orderId }));

describe.concurrent("a queue of runs", () => {
  test("one run per order, however often its message comes", async () => {
    const done: string[] = [];
    const { handler } = ordering(async (ctx, { orderId }) => {
      await ctx.step("note", async () => void done.push(orderId));
    });
    const event = eventOf(orders("1", "2", "1", "3"));
    // The second message for order 1 may have met the first one under way.
    for (let i = 0; i < 3; i += 1) await handler(event, within());
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(done.sort()).toEqual(["1", "2", "3"]);
  });

  test("a workflow that does not name its runs has one per message", async () => {
    let runs = 0;
    const body = (ctx: WorkflowContext) =>
      ctx.step("note", async () => {
        runs += 1;
      });
    const { handler } = ordering(body, {}, { id: false });
    const event = eventOf(orders("1", "1"));
    await handler(event, within());
    await handler(event, within());
    expect(runs).toBe(2);
  });

  test("only the messages whose runs have not ended come again", async () => {
    const { handler, delays } = ordering(async (ctx, { orderId }) => {
      if (orderId === "2") await ctx.sleep("until tomorrow", "90s");
    });
    const event = eventOf(orders("1", "2", "3"));
    expect(await failed(event, handler(event, within()))).toEqual([1]);
    expect(delays).toMatchObject([{ orders: ["2"] }]);
    expect(delays[0]?.seconds).toBeGreaterThanOrEqual(89);
    expect(delays[0]?.seconds).toBeLessThanOrEqual(91);
  });

  test("parked runs can be left to a sweeper, except on FIFO queues", async () => {
    const body = async (ctx: WorkflowContext) => ctx.sleep("a while", "1h");
    const { handler } = ordering(body, { parked: "leave" });
    expect(await handler(eventOf(orders("1")), within())).toEqual({ batchItemFailures: [] });
    const event = eventOf(orders("2"), { fifo: true });
    expect(await failed(event, handler(event, within()))).toEqual([0]);
  });

  test("contention is no failure: it is delayed, by up to a minute, and never handed over", async () => {
    const locks = memoryStore();
    const { handler, delays, poison, events } = ordering(
      (ctx) => ctx.step("reserve", { lock: { names: "sku/a", onBusy: "suspend" } }, async () => 1),
      {},
      { locks },
    );
    const held = await locks.lock("sku/a", { ttl: 60_000, wait: 0 });
    const event = eventOf(orders("1"), { receives: 30 });
    expect(await failed(event, handler(event, within()))).toEqual([0]);
    // Parked for a moment, it is not even asked for.
    expect(await failed(event, handler(event, within()))).toEqual([0]);
    expect(poison).toEqual([]);
    expect(events).toMatchObject([
      { type: "later", why: "busy" },
      { type: "later", why: "busy" },
    ]);
    for (const { seconds } of delays) {
      expect(seconds).toBeGreaterThanOrEqual(30);
      expect(seconds).toBeLessThanOrEqual(60);
    }
    await held.unlock();
    await pause(800);
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
  });

  test("a run that somebody else carries comes again after a second", async () => {
    const [begun, going] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const { handler, delays } = ordering((ctx) =>
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

  test("a run that has failed is handed over once the journal says so, and its message is done", async () => {
    let attempts = 0;
    const { handler, poison, codes } = ordering(async (ctx, { orderId }) => {
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

  test("a handler may say which failures it wants handed over", async () => {
    const poison: Poison[] = [];
    const isPoison = ({ code }: { readonly code?: string | undefined }) => code !== "SOLD_OUT";
    const { handler } = ordering(
      async (_, { orderId }) => {
        throw new TerminalError(orderId);
      },
      { poison: { to: async (one) => void poison.push(one), isPoison } },
    );
    const event = eventOf(orders("SOLD_OUT", "BROKEN"));
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(poison).toMatchObject([{ error: { code: "BROKEN" } }]);
  });

  test("what is no JSON, not valid, or another order under a known id is poison at once", async () => {
    const { handler, codes, journal } = ordering(async () => {});
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

  test("a number that would be rounded is poison: as an id, it would be another order", async () => {
    const numbered = workflow(
      { name: "numbered", version: 1, input: z.object({ id: z.number() }), id: (o) => `${o.id}` },
      async () => 1,
    );
    const journal = memoryJournal();
    const heard = listening();
    const handler = queueHandler(createRuntime({ journal }), numbered, heard.options);
    const event = eventOf(["9007199254740991", "9007199254740993"].map((id) => `{"id":${id}}`));
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(heard.codes()).toEqual(["INVALID_MESSAGE"]);
    expect(await journal.list()).toHaveLength(1);
  });

  test("poison that cannot be handed over comes again", async () => {
    const to = async () => {
      throw new Error("the other queue is away");
    };
    const { handler, events } = ordering(async () => {}, { poison: { to } });
    const event = eventOf(["{"]);
    expect(await failed(event, handler(event, within()))).toEqual([0]);
    expect(events.map(({ type }) => type)).toEqual(["poison", "hook-failed", "later"]);
  });

  test("a journal that does not answer fails nothing but the delivery", async () => {
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
    const heard = listening();
    const open = async () => createRuntime({ journal: { ...journal, claim } });
    const handler = queueHandler(open, wf, heard.options);
    const event = eventOf(orders("1", "2"));
    expect(await failed(event, handler(event, within()))).toEqual([0, 1]);
    expect(heard.poison).toEqual([]);
    for (const problem of [new Error("no network"), new RangeError("connections must be 1 to 9")]) {
      const broken = queueHandler(() => Promise.reject(problem), wf, heard.options);
      expect(await failed(event, broken(event, within()))).toEqual([0, 1]);
      expect(heard.poison).toEqual([]);
    }
    away = false;
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
  });

  test("hooks that listen may throw or reject, and nothing comes of it", async () => {
    const { handler } = ordering(
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

  test("an event of something else is refused as a whole", async () => {
    const { handler } = ordering(async () => {});
    await expect(handler({} as SQSEvent, within())).rejects.toThrow(TypeError);
    expect(await handler({ Records: [] }, within())).toEqual({ batchItemFailures: [] });
  });
});

describe.concurrent("a queue that is short of time", () => {
  test("begins nothing that cannot finish, and says so at once", async () => {
    let begun = 0;
    const { handler, delays } = ordering(
      (ctx) =>
        ctx.step("work", async () => {
          begun += 1;
          await pause(2_700);
        }),
      { concurrency: 1, reserve: 500 },
    );
    const event = eventOf(orders("1", "2", "3", "4"));
    // 3,500 ms of work: the first one leaves less than a second.
    expect(await failed(event, handler(event, within(4_000)))).toEqual([1, 2, 3]);
    expect(begun).toBe(1);
    expect(delays).toEqual([{ orders: ["2", "3", "4"], seconds: 0 }]);
    expect(await failed(event, handler(event, within(0)))).toEqual([0, 1, 2, 3]);
    expect(begun).toBe(1);
  });

  test("does not wait for hooks that hang", async () => {
    const hang = () => new Promise(() => {});
    const { handler } = ordering(
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

  test("a function that is too short for anything does not use up the receives", async () => {
    const { handler, delays } = ordering(async () => {});
    for (const receives of [3, 10, 30]) {
      await handler(eventOf(orders("1"), { receives }), within(0));
    }
    expect(delays[0]?.seconds).toBe(0);
    for (const { seconds } of delays.slice(1)) expect(seconds).toBeGreaterThanOrEqual(30);
  });

  test("lets go of a run at its end, and another invocation goes on with it", async () => {
    const steps: string[] = [];
    const { handler } = ordering(
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

  test("does not wait for what is stuck: the rest is answered for in time", async () => {
    const { handler, runtime } = ordering(async () => {}, { reserve: 2_500 });
    const drive: Runtime["drive"] = (wf, input, options) =>
      (input as unknown as Order).orderId === "2"
        ? new Promise(() => {})
        : runtime.drive(wf, input, options);
    const wf = workflow(
      { name: "stuck", version: 1, input: Order, id: (o) => o.orderId },
      async () => 1,
    );
    const heard = listening();
    const stuck = queueHandler({ ...runtime, journal: runtime.journal, workflows: [], drive }, wf, {
      ...heard.options,
      reserve: 2_500,
    });
    const event = eventOf(orders("1", "2", "3"));
    const context = within(6_000);
    expect(await failed(event, stuck(event, context))).toEqual([1]);
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
    // It is still under way, so that nobody else is to begin it now.
    expect(heard.delays).toEqual([]);
    await handler(event, within());
  });
});

describe.concurrent("a FIFO queue", () => {
  test("stops a group at the message that comes again, and carries the other groups", async () => {
    const seen: string[] = [];
    const { handler, delays, events } = ordering(async (ctx, { orderId }) => {
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
    expect(delays).toEqual([{ orders: ["a2", "a3"], seconds: 30 }]);
    expect(events.map((event) => event.type === "later" && event.why)).toEqual([
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
    const { handler } = ordering(async (_, { orderId }) => {
      seen.push(`${orderId} begins`);
      await pause(5);
      seen.push(`${orderId} ends`);
    });
    const event = eventOf(orders("1", "2", "3"), { fifo: true });
    await handler(event, within());
    expect(seen).toEqual(["1", "2", "3"].flatMap((id) => [`${id} begins`, `${id} ends`]));
  });

  test("goes on behind poison that was handed over, and waits behind poison that was not", async () => {
    const { handler, delays } = ordering(async () => {});
    const event = eventOf([{ orderId: "1" }, "{", { orderId: "2" }], { fifo: true });
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    const seen: string[] = [];
    const runtime = createRuntime({ journal: memoryJournal() });
    const wf = workflow({ name: "no-poison", version: 1, input: Order }, async (_, { orderId }) =>
      seen.push(orderId),
    );
    const without = queueHandler(runtime, wf, {});
    expect(await failed(event, without(event, within()))).toEqual([1, 2]);
    expect(seen).toEqual(["1"]);
    expect(delays).toEqual([]);
  });

  test("is known by its name: groups of a standard queue are for fairness alone", async () => {
    const { handler } = ordering(async (ctx, { orderId }) => {
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

describe.concurrent("a queue of stock", () => {
  async function shop(options: StockOptions = {}, quantity = 10) {
    const database = openSqlite(":memory:");
    await migrate(database);
    const inventory = sqlInventory(database);
    for (const sku of ["a", "b"]) await inventory.set({ sku, quantity, operationId: `set-${sku}` });
    const locks = memoryStore();
    const heard = listening();
    const answers: StockAnswer[] = [];
    const onAnswer = async (answer: StockAnswer) => void answers.push(answer);
    const all = { ...heard.options, onAnswer, reserve: 500, ...options };
    const batches: string[][] = [];
    const counting: Inventory = {
      ...inventory,
      decrementMany(batch) {
        batches.push(batch.orders.map(({ operationId }) => operationId));
        return inventory.decrementMany(batch);
      },
    };
    const handler = stockHandler({ inventory: counting, locks }, all);
    return { ...heard, inventory, locks, handler, answers, batches, options: all };
  }
  const sales = (...ids: readonly string[]) =>
    ids.map((orderId) => ({ orderId, sku: orderId.slice(0, 1), quantity: 3 }));

  test("the orders of a batch for a sku are one transaction under one lock", async () => {
    const { handler, batches, answers, inventory, locks } = await shop();
    const event = eventOf(sales("a1", "b1", "a2", "a3", "a4", "b2"));
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(batches.sort()).toEqual([
      ["a1", "a2", "a3", "a4"],
      ["b1", "b2"],
    ]);
    const told = Object.fromEntries(answers.map(({ orderId, outcome }) => [orderId, outcome]));
    expect(told).toEqual({
      a1: "applied",
      a2: "applied",
      a3: "applied",
      a4: "sold-out",
      b1: "applied",
      b2: "applied",
    });
    expect(await inventory.get("a")).toMatchObject({ onHand: 1, sold: 9 });
    expect(await locks.list()).toEqual([]);
  });

  test("each order is sold once and has one answer, however often it comes", async () => {
    const { handler, answers, inventory } = await shop();
    const event = eventOf(sales("a1", "a2", "a1", "a3"));
    for (let i = 0; i < 3; i += 1) {
      expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    }
    const distinct = new Set(
      answers.map(({ orderId, outcome, remaining }) => `${orderId} ${outcome} ${remaining}`),
    );
    expect([...distinct].sort()).toEqual(["a1 applied 7", "a2 applied 4", "a3 applied 1"]);
    expect(answers.filter(({ replayed }) => !replayed)).toHaveLength(3);
    expect(await inventory.get("a")).toMatchObject({ onHand: 1, sold: 9 });
  });

  test("an order that could not be answered comes again, with the same answer", async () => {
    let isAway = true;
    const told: StockAnswer[] = [];
    const onAnswer = async (answer: StockAnswer) => {
      if (isAway && answer.orderId === "a1") throw new Error("away");
      told.push(answer);
    };
    const { handler, poison } = await shop({ onAnswer });
    const event = eventOf(sales("a1", "a2"));
    expect(await failed(event, handler(event, within()))).toEqual([0]);
    isAway = false;
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(told.filter(({ orderId }) => orderId === "a1")).toMatchObject([
      { remaining: 7, replayed: true },
    ]);
    expect(poison).toEqual([]);
  });

  test("an order whose answer is stuck holds up no other one", async () => {
    const onAnswer = ({ orderId }: StockAnswer) =>
      orderId === "a1" ? new Promise(() => {}) : Promise.resolve();
    const { handler } = await shop({ onAnswer });
    const event = eventOf(sales("a1", "a2", "a3", "b1"));
    const context = within(5_000);
    expect(await failed(event, handler(event, context))).toEqual([0]);
    expect(context.getRemainingTimeInMillis()).toBeGreaterThan(0);
  });

  test("the largest batch is sold, and told with a bounded number of answers at a time", async () => {
    let [now, most] = [0, 0];
    const onAnswer = async () => {
      now += 1;
      most = Math.max(most, now);
      await pause(1);
      now -= 1;
    };
    const { handler, inventory } = await shop({ onAnswer }, 20_000);
    const all = Array.from({ length: 10_000 }, (_, i) => ({ orderId: `${i}`, sku: "a" }));
    expect(await handler(eventOf(all), within())).toEqual({ batchItemFailures: [] });
    expect(await inventory.get("a")).toMatchObject({ sold: 10_000 });
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(100);
  });

  test("on a FIFO queue, answers are told in order, and none behind one that could not be", async () => {
    const told: string[] = [];
    const onAnswer = async ({ orderId }: StockAnswer) => {
      await pause(orderId === "a1" ? 20 : 0);
      told.push(orderId);
      if (orderId === "a2") throw new Error("away");
    };
    const { handler } = await shop({ onAnswer });
    const event = eventOf(sales("a1", "a2", "a3"), { fifo: true });
    expect(await failed(event, handler(event, within()))).toEqual([1, 2]);
    expect(told).toEqual(["a1", "a2"]);
  });

  test("a sku that others work on is delayed, and the others are sold", async () => {
    const { handler, locks, delays, poison } = await shop({ wait: 50 });
    const held = await locks.lock(stockLock("a"), { ttl: 60_000, wait: 0 });
    const event = eventOf(sales("a1", "b1", "a2"));
    expect(await failed(event, handler(event, within()))).toEqual([0, 2]);
    expect(delays).toEqual([{ orders: ["a1", "a2"], seconds: 1 }]);
    expect(poison).toEqual([]);
    await held.unlock();
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
  });

  test("a holder that was late tries again under a new lock", async () => {
    const { inventory, locks, options } = await shop();
    let late = 1;
    const stock: Inventory = {
      ...inventory,
      async decrementMany(batch) {
        if (late-- > 0 && batch.fence) throw new FencedOutError(batch.fence, "0.9");
        return inventory.decrementMany(batch);
      },
    };
    const handler = stockHandler({ inventory: stock, locks }, options);
    expect(await handler(eventOf(sales("a1")), within())).toEqual({ batchItemFailures: [] });
  });

  test("what is no order is poison, and so is one that can never be served", async () => {
    const { handler, codes, answers } = await shop();
    const event = eventOf([
      "{",
      "null",
      { orderId: "x", sku: "a", quantity: 1.5 },
      { orderId: "y", sku: "a", quantity: "1" },
      { orderId: 7, sku: "a" },
      { orderId: "z", sku: "none", quantity: 1 },
      { orderId: "a1", sku: "a", quantity: 1 },
    ]);
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(codes().filter(Boolean).sort()).toEqual([
      "INVALID_MESSAGE",
      "INVALID_MESSAGE",
      "UNKNOWN_SKU",
    ]);
    expect(codes()).toHaveLength(6);
    const other = eventOf([{ orderId: "a1", sku: "a", quantity: 2 }]);
    expect(await handler(other, within())).toEqual({ batchItemFailures: [] });
    expect(codes().at(-1)).toBe("OPERATION_CONFLICT");
    expect(answers).toHaveLength(1);
  });

  test("a store that does not answer fails nothing but the delivery", async () => {
    const { inventory, locks, options, poison } = await shop();
    const decrementMany = () => Promise.reject(new StoreUnavailableError("here", "away"));
    const handler = stockHandler({ inventory: { ...inventory, decrementMany }, locks }, options);
    const event = eventOf(sales("a1", "a2"));
    expect(await failed(event, handler(event, within()))).toEqual([0, 1]);
    expect(poison).toEqual([]);
    expect(await locks.list()).toEqual([]);
  });

  test("on a FIFO queue, orders that follow each other in a group are one transaction", async () => {
    const { handler, batches } = await shop();
    const event = eventOf(sales("a1", "a2", "b1", "a3"), { fifo: true });
    expect(await handler(event, within())).toEqual({ batchItemFailures: [] });
    expect(batches).toEqual([["a1", "a2"], ["b1"], ["a3"]]);
  });

  test("on a FIFO queue, those behind an order that comes again come again too", async () => {
    const onAnswer = async ({ orderId }: StockAnswer) => {
      if (orderId === "a2") throw new Error("away");
    };
    const { handler } = await shop({ onAnswer });
    const event = eventOf(sales("a1", "a2", "a3", "b1"), { fifo: true });
    expect(await failed(event, handler(event, within()))).toEqual([1, 2, 3]);
  });
});
