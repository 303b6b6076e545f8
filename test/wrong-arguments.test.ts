import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { claimFence, list, sql } from "../core/database/index.ts";
import { compareFence, deadlineIn, openFence, sealFence } from "../core/index.ts";
import { stockLock } from "../core/inventory/index.ts";
import type { Fence } from "../core/lock/fence.ts";
import {
  Codec,
  createRuntime,
  entity,
  RetryAfterError,
  type Runtime,
  Schedule,
  workflow,
} from "../core/steps/index.ts";
import { createTestRuntime, exportRun, withFaults } from "../core/steps/testing.ts";
import { openMemory } from "../core/stores/memory/index.ts";
import { openSqlite, type SqlStore } from "../core/stores/sqlite/index.ts";
import { bearer, createApp, httpHandler } from "../functions/http/index.ts";
import {
  instrument,
  lazy,
  lockedHandler,
  migrateHandler,
  queueHandler,
  rdsOptions,
  scheduleHandler,
  stockHandler,
  sweepHandler,
  withSecret,
} from "../functions/lambda/index.ts";
import {
  combineTelemetry,
  emf,
  logTelemetry,
  metricTelemetry,
} from "../functions/telemetry/index.ts";
import { addOrders, countOrders, fulfil, runWorker } from "../functions/worker/index.ts";
import { open } from "../infra/open.ts";
import { flow } from "./support/flow.ts";
import { within } from "./support/until.ts";

/** Values of wrong types, as callers of plain JavaScript pass them. */
const WRONG: readonly unknown[] = [
  undefined,
  null,
  5,
  -1,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  2 ** 60,
  7n,
  "",
  "a\ud800",
  "x".repeat(100_000),
  true,
  {},
  [],
  [null],
  Symbol("s"),
  () => {},
];

/** Messages of the language about code that uses a value without a look at it. */
const INTERNAL =
  /^(?!a workflow is made by).*(?:Cannot (read|set|destructure|use|convert|mix|access|create)|is not (a function|iterable|a constructor|an Object|async iterable)|(reading|undefined) '|Invalid array length|is not defined|Invalid (array|string) length|Method .* called on incompatible)/;

interface Shop {
  readonly sql: SqlStore;
  readonly memory: Awaited<ReturnType<typeof openMemory>>;
  readonly runtime: Runtime;
  readonly fence: Fence;
}

let shop: Shop;

const placeOrder = flow(async () => "placed");
const count = entity({ name: "count", state: z.number(), initial: 0 }, (on) => ({
  add: on(z.number(), async ({ state }, n) => ({ state: state + n })),
}));
const definition = { name: "order", version: 1, input: z.object({ n: z.number() }) };
const lock = { ttl: "10s", wait: 0 } as const;
const change = { sku: "teapot", quantity: 1, operationId: "o-1" };

beforeAll(async () => {
  const sqlStore = await openSqlite(":memory:");
  const memory = await openMemory();
  await sqlStore.inventory.set({ sku: "teapot", quantity: 10, operationId: "count-1" });
  const held = await sqlStore.locks.lock(stockLock("teapot"), { ttl: "1h", wait: 0 });
  const runtime = createRuntime({ journal: sqlStore.journal, locks: sqlStore.locks });
  shop = { sql: sqlStore, memory, runtime, fence: held.fence };
});

afterAll(async () => {
  await shop.sql.close();
  await shop.memory.close();
});

/** Calls with a wrong value in place of one argument or option. */
type Calls = Readonly<Record<string, (wrong: never, shop: Shop) => unknown>>;

const LOCKS: Calls = {
  "lock(name)": (w, { memory }) => memory.locks.lock(w, lock),
  "lock(options)": (w, { memory }) => memory.locks.lock("a", w),
  "lock(ttl)": (w, { memory }) => memory.locks.lock("a", { ...lock, ttl: w }),
  "lock(wait)": (w, { sql }) => sql.locks.lock("a", { ...lock, wait: w }),
  "lock(renew)": (w, { sql }) => sql.locks.lock("b", { ...lock, renew: w }),
  "lock(maxHold)": (w, { sql }) => sql.locks.lock("c", { ...lock, maxHold: w }),
  "lock(lockDelay)": (w, { sql }) => sql.locks.lock("d", { ...lock, lockDelay: w }),
  "lock(signal)": (w, { sql }) => sql.locks.lock("e", { ...lock, signal: w }),
  "lock(deadline)": (w, { sql }) => sql.locks.lock("f", { ...lock, deadline: w }),
  "tryLock(name)": (w, { sql }) => sql.locks.tryLock(w, lock),
  "lockAll(names)": (w, { sql }) => sql.locks.lockAll(w, lock),
  "lockAll(options)": (w, { sql }) => sql.locks.lockAll(["a"], w),
  "withLock(body)": (w, { sql }) => sql.locks.withLock("g", lock, w),
  "inspect(name)": (w, { sql }) => sql.locks.inspect(w),
  "list(prefix)": (w, { sql }) => sql.locks.list(w),
  "release(name)": (w, { sql }) => sql.locks.release(w, { fence: "" }),
  "release(options)": (w, { sql }) => sql.locks.release("a", w),
  "release(fence)": (w, { sql }) => sql.locks.release("a", { fence: w }),
  "raiseGeneration()": (w, { memory }) => memory.locks.raiseGeneration(w),
  "ensure(span)": async (w, { memory }) => {
    await using held = await memory.locks.lock("h", { ttl: "1h", wait: "1s" });
    held.assertHeld(w);
    await held.ensure(w);
  },
  "elections.open(name)": async (w, { sql }) => (await sql.elections.open(w)).close(),
  "elections.open(options)": async (w, { sql }) => (await sql.elections.open("a", w)).close(),
  "elections.open(ttl)": async (w, { sql }) => (await sql.elections.open("a", { ttl: w })).close(),
  "elections.open(signal)": async (w, { sql }) => {
    await (await sql.elections.open("a", { signal: w })).close();
  },
  "campaign(value)": async (w, { sql }) => {
    await using election = await sql.elections.open("i");
    await election.campaign(w);
  },
  "campaign(signal)": async (w, { sql }) => {
    await using election = await sql.elections.open("i");
    await election.campaign("a", { signal: w });
  },
  "proclaim(value)": async (w, { sql }) => {
    await using election = await sql.elections.open("i");
    await election.proclaim(w);
  },
  "leader(signal)": async (w, { sql }) => {
    await using election = await sql.elections.open("i");
    await election.leader(w);
  },
  "observe(options)": async (w, { sql }) => {
    await using election = await sql.elections.open("i");
    await election.observe(w).next();
  },
  deadlineIn: (w) => deadlineIn(w),
  "compareFence(a)": (w, { fence }) => compareFence(w, fence),
  "compareFence(b)": (w, { fence }) => compareFence(fence, w),
  "sealFence(fence)": (w) => sealFence(w, "0123456789abcdef"),
  "sealFence(secret)": (w, { fence }) => sealFence(fence, w),
  "openFence(text)": (w) => openFence(w, "0123456789abcdef"),
  "openFence(secret)": (w) => openFence("a", w),
};

const STOCK: Calls = {
  stockLock: (w) => stockLock(w),
  ...changeOf("set"),
  ...changeOf("restock"),
  ...changeOf("decrement"),
  ...changeOf("reserve"),
  ...changeOf("confirm"),
  ...changeOf("cancel"),
  "reserve(expiresIn)": (w, { sql }) =>
    sql.inventory.reserve({ ...change, operationId: "count-1", expiresIn: w }),
  "confirm(reservation)": (w, { sql }) => sql.inventory.confirm({ ...change, reservation: w }),
  "decrementMany()": (w, { sql }) => sql.inventory.decrementMany(w),
  "decrementMany(orders)": (w, { sql }) =>
    sql.inventory.decrementMany({ sku: "teapot", orders: w }),
  "decrementMany(order)": (w, { sql }) =>
    sql.inventory.decrementMany({ sku: "teapot", orders: [w] }),
  get: (w, { sql }) => sql.inventory.get(w),
  "list()": (w, { sql }) => sql.inventory.list(w),
  "list(prefix)": (w, { sql }) => sql.inventory.list({ prefix: w }),
  "list(after)": (w, { sql }) => sql.inventory.list({ after: w }),
  "list(limit)": (w, { sql }) => sql.inventory.list({ limit: w }),
  "history(sku)": (w, { sql }) => sql.inventory.history(w),
  "history(options)": (w, { sql }) => sql.inventory.history("teapot", w),
  "history(before)": (w, { sql }) => sql.inventory.history("teapot", { before: w }),
  "reservations(sku)": (w, { sql }) => sql.inventory.reservations(w),
  "reservations(options)": (w, { sql }) => sql.inventory.reservations("teapot", w),
  expire: (w, { sql }) => sql.inventory.expire(w),
  claim: (w, { sql }) => sql.inventory.claim(w),
  within: (w, { sql }) => sql.inventory.within(w),
};

function changeOf(kind: "set" | "restock" | "decrement" | "reserve" | "confirm" | "cancel"): Calls {
  const call = (given: object, { sql }: Shop) => sql.inventory[kind](given as never);
  return {
    [`${kind}()`]: (w, given) => call(w, given),
    [`${kind}(sku)`]: (w, given) => call({ ...change, sku: w }, given),
    [`${kind}(operationId)`]: (w, given) => call({ ...change, operationId: w }, given),
    [`${kind}(quantity)`]: (w, given) =>
      call({ ...change, operationId: "count-1", quantity: w }, given),
    [`${kind}(fence)`]: (w, given) => call({ ...change, operationId: "count-1", fence: w }, given),
    [`${kind}(signal)`]: (w, given) =>
      call({ ...change, operationId: "count-1", signal: w }, given),
  };
}

const DATABASE: Calls = {
  "sql()": (w) => sql(w),
  "sql`${}`": (w) => sql`SELECT ${w}`,
  list: (w) => list(w),
  "list([])": (w) => list([w]),
  "batch()": (w, { sql }) => sql.database.batch(w),
  "batch([])": (w, { sql }) => sql.database.batch([w]),
  "batch(signal)": (w, { sql: { database } }) => database.batch([sql`SELECT 1`], w),
  "read()": (w, { sql }) => sql.database.read(w),
  "read(signal)": (w, { sql: { database } }) => database.read(sql`SELECT 1`, w),
  "transaction()": (w, { sql }) => sql.database.transaction(w),
  "transaction(signal)": (w, { sql }) => sql.database.transaction(async () => 1, w),
  "tx.batch()": (w, { sql }) => sql.database.transaction((tx) => tx.batch(w)),
  "tx.commit()": (w, { sql }) => sql.database.transaction((tx) => tx.commit(w)),
  "claimFence(database)": (w, { sql, fence }) =>
    sql.database.transaction((tx) => claimFence(w, tx, fence)),
  "claimFence(tx)": (w, { sql, fence }) => claimFence(sql.database, w, fence),
  "claimFence(fence)": (w, { sql: { database } }) =>
    database.transaction((tx) => claimFence(database, tx, w)),
  "addOrders(database)": (w) => addOrders(w, []),
  "addOrders(orders)": (w, { sql }) => addOrders(sql.database, w),
  "addOrders(order)": (w, { sql }) => addOrders(sql.database, [w]),
  countOrders: (w) => countOrders(w),
};

const STEPS: Calls = {
  createRuntime: (w) => createRuntime(w),
  "createRuntime(journal)": (w) => createRuntime({ journal: w }),
  ...runtimeWith("locks"),
  ...runtimeWith("codec"),
  ...runtimeWith("workflows"),
  ...runtimeWith("entities"),
  ...runtimeWith("owner"),
  ...runtimeWith("lease"),
  ...runtimeWith("inlineWait"),
  ...runtimeWith("onEvent"),
  ...runtimeWith("interceptor"),
  createTestRuntime: (w) => createTestRuntime(w),
  "createTestRuntime(fake)": (w, { sql }) => createTestRuntime({ journal: sql.journal, fake: w }),
  workflow: (w) => workflow(w, async () => 1),
  "workflow(body)": (w) => workflow(definition, w),
  ...workflowWith("name"),
  ...workflowWith("version"),
  ...workflowWith("input"),
  ...workflowWith("signals"),
  ...workflowWith("id"),
  ...workflowWith("fingerprint"),
  ...workflowWith("onConflict"),
  ...workflowWith("queue"),
  ...workflowWith("key"),
  ...workflowWith("priority"),
  ...workflowWith("schedule"),
  ...workflowWith("keep"),
  ...workflowWith("timeout"),
  ...workflowWith("maxCrashes"),
  entity: (w) => entity(w, () => ({})),
  "entity(define)": (w) => entity({ name: "e", state: z.number(), initial: 0 }, w),
  "entity(state)": (w) => entity({ name: "e", state: w, initial: 0 as never }, () => ({})),
  "entity(retry)": (w) =>
    entity({ name: "e", state: z.number(), initial: 0, retry: w }, () => ({})),
  "Schedule(pattern)": (w) => new Schedule(w, { input: () => 1 }),
  "Schedule(options)": (w) => new Schedule("@daily", w),
  "Schedule(timezone)": (w) => new Schedule("@daily", { input: () => 1, timezone: w }),
  "Schedule(catchUp)": (w) => new Schedule("@daily", { input: () => 1, catchUp: w }),
  "Codec.compressed": (w) => Codec.compressed(w),
  "Codec.compressed(above)": (w) => Codec.compressed({ above: w }),
  "Codec.encrypted": (w) => Codec.encrypted(w),
  "Codec.encrypted(keys)": (w) => Codec.encrypted({ keys: w, current: undefined }),
  RetryAfterError: (w) => new RetryAfterError("later", w),
  "execute(workflow)": (w, { runtime }) => runtime.execute(w, {}),
  "execute(input)": (w, { runtime }) => runtime.execute(placeOrder, w),
  "execute(options)": (w, { runtime }) => runtime.execute(placeOrder, { n: 1 }, w),
  ...executeWith("id"),
  ...executeWith("queue"),
  ...executeWith("key"),
  ...executeWith("priority"),
  ...executeWith("deadline"),
  ...executeWith("signal"),
  ...executeWith("drain"),
  ...executeWith("lockWait"),
  "start(singleton)": (w, { runtime }) => runtime.start(placeOrder, { n: 1 }, { singleton: w }),
  "start(debounce)": (w, { runtime }) => runtime.start(placeOrder, { n: 1 }, { debounce: w }),
  "run(workflow)": (w, { runtime }) => runtime.run(w, {}),
  "run(options)": (w, { runtime }) => runtime.run(placeOrder, { n: 1 }, w),
  "resume(id)": (w, { runtime }) => runtime.resume(w),
  "resume(options)": (w, { runtime }) => runtime.resume("a", w),
  "signal(id)": (w, { runtime }) => runtime.signal(w, "paid", 1, { dedupeId: "1" }),
  "signal(name)": (w, { runtime }) => runtime.signal("a", w, 1, { dedupeId: "1" }),
  "signal(payload)": (w, { runtime }) => runtime.signal("a", "paid", w, { dedupeId: "1" }),
  "signal(options)": (w, { runtime }) => runtime.signal("a", "paid", 1, w),
  "update(id)": (w, { runtime }) => runtime.update(w, "paid", 1, { dedupeId: "1" }),
  "update(name)": (w, { runtime }) => runtime.update("a", w, 1, { dedupeId: "1" }),
  "update(options)": (w, { runtime }) => runtime.update("a", "paid", 1, w),
  "query(id)": (w, { runtime }) => runtime.query(w, "a"),
  "query(name)": (w, { runtime }) => runtime.query("a", w),
  cancel: (w, { runtime }) => runtime.cancel(w),
  retry: (w, { runtime }) => runtime.retry(w),
  retryUndo: (w, { runtime }) => runtime.retryUndo(w),
  "fork(id)": (w, { runtime }) => runtime.fork(w, { from: "a" }),
  "fork(options)": (w, { runtime }) => runtime.fork("a", w),
  "runtime.entity(entity)": (w, { runtime }) => runtime.entity(w, "a"),
  "runtime.entity(key)": (w, { runtime }) => runtime.entity(count, w),
  "call(handler)": (w, { runtime }) =>
    runtime.entity(count, "a").call(w, 1 as never, { operationId: "1" }),
  "call(input)": (w, { runtime }) =>
    runtime.entity(count, "a").call("add", w, { operationId: "2" }),
  "call(options)": (w, { runtime }) => runtime.entity(count, "a").call("add", 1, w),
  "tell(options)": (w, { runtime }) => runtime.entity(count, "a").tell("add", 1, w),
  "deliver(signal)": (w, { runtime }) => runtime.deliver(w),
  "setLimits(queue)": (w, { sql }) => sql.journal.setLimits(w, {}),
  "setLimits(limits)": (w, { sql }) => sql.journal.setLimits("q", w),
  "setLimits(rate)": (w, { sql }) => sql.journal.setLimits("q", { rate: w }),
  "journal.list()": (w, { sql }) => sql.journal.list(w),
  "journal.list(limit)": (w, { sql }) => sql.journal.list({ limit: w }),
  "journal.show(id)": (w, { sql }) => sql.journal.show(w),
  "journal.show(page)": (w, { sql }) => sql.journal.show("a", w),
  "journal.purge(limit)": (w, { sql }) => sql.journal.purge(w),
  "withFaults(workflow)": (w) => withFaults(w, {}),
  "exportRun(journal)": (w) => exportRun(w, "a"),
};

function runtimeWith(option: string): Calls {
  return {
    [`createRuntime(${option})`]: (w, { sql }) =>
      createRuntime({ journal: sql.journal, [option]: w }),
  };
}

function workflowWith(member: string): Calls {
  return {
    [`workflow(${member})`]: async (w, { runtime }) => {
      const made = workflow({ ...definition, [member]: w }, async () => 1);
      await made.prepare({ n: 1 } as never);
      expect(runtime).toBeDefined();
    },
  };
}

function executeWith(option: string): Calls {
  return {
    [`execute(${option})`]: (w, { runtime }) =>
      runtime.execute(placeOrder, { n: 1 }, { [option]: w }),
  };
}

const event = { Records: [] };
const context = { getRemainingTimeInMillis: () => 10_000 };

const FUNCTIONS: Calls = {
  "open(url)": (w) => open(w),
  "open(options)": async (w) => (await open("memory:", w)).close(),
  "openMemory(options)": async (w) => (await openMemory(w)).close(),
  "openMemory(label)": async (w) => (await openMemory({ label: w })).close(),
  "openMemory(maxWaiters)": async (w) => (await openMemory({ maxWaiters: w })).close(),
  "openSqlite(file)": (w) => openSqlite(typeof w === "string" ? "" : w),
  "openSqlite(options)": async (w) => (await openSqlite(":memory:", w)).close(),
  lazy: (w) => lazy(w),
  "instrument(context)": (w) => instrument(async () => 1, { flush: () => {} })({}, w),
  "lockedHandler(options)": (w, { sql }) => lockedHandler(sql.locks, w, async () => 1),
  "lockedHandler(body)": (w, { sql }) => lockedHandler(sql.locks, { name: "a" }, w),
  "lockedHandler(name)": (w, { sql }) =>
    lockedHandler(sql.locks, { name: w }, async () => 1)({}, context),
  "lockedHandler(wait)": (w, { sql }) =>
    lockedHandler(sql.locks, { name: "a", wait: w }, async () => 1),
  "lockedHandler()(context)": (w, { sql }) =>
    lockedHandler(sql.locks, { name: "a" }, async () => 1)({}, w),
  "migrateHandler(store)": (w) => migrateHandler(w)(),
  "queueHandler(workflow)": (w, { runtime }) => queueHandler(runtime, w),
  "queueHandler(options)": (w, { runtime }) => queueHandler(runtime, placeOrder, w),
  "queueHandler()(event)": (w, { runtime }) => queueHandler(runtime, placeOrder)(w, context),
  "queueHandler()(context)": (w, { runtime }) => queueHandler(runtime, placeOrder)(event, w),
  "scheduleHandler(workflow)": (w, { runtime }) =>
    scheduleHandler(runtime, w, { input: () => ({ n: 1 }) }),
  "scheduleHandler(options)": (w, { runtime }) => scheduleHandler(runtime, placeOrder, w),
  "scheduleHandler()(context)": (w, { runtime }) =>
    scheduleHandler(runtime, placeOrder, { input: () => ({ n: 1 }) })({ time: "2026-01-01" }, w),
  "scheduleHandler()(event)": (w, { runtime }) =>
    scheduleHandler(runtime, placeOrder, { input: () => ({ n: 1 }) })(w, context),
  "stockHandler(options)": (w, { sql }) => stockHandler(sql, w),
  "stockHandler()(context)": (w, { sql }) => stockHandler(sql)(event, w),
  "sweepHandler(options)": (w, { runtime }) => sweepHandler(runtime, w),
  "sweepHandler()(context)": (w, { runtime }) => sweepHandler(runtime)({}, w),
  "httpHandler(app)": (w) => httpHandler(w),
  "httpHandler(options)": (w) => httpHandler(createApp(), w),
  "httpHandler()(event)": (w) => httpHandler(createApp())(w, context as never),
  "httpHandler()(context)": (w) => httpHandler(createApp())({} as never, w),
  "withSecret(arn)": (w, { sql }) => withSecret(w, async () => sql)(),
  "withSecret(open)": (w) => withSecret("arn:aws:a", w),
  "rdsOptions(secret)": (w) => rdsOptions(w),
  createApp: (w) => createApp(w),
  "createApp(origins)": (w) => createApp({ origins: w }),
  "createApp(basePath)": (w) => createApp({ basePath: w }),
  "createApp(limits)": (w) => createApp({ limits: w }),
  "createApp(authorize)": (w) => createApp({ authorize: w }),
  "createApp(statuses)": (w) => createApp({ statuses: w }),
  "createApp(statuses.MINE)": (w) => createApp({ statuses: { MINE: w } }),
  "createApp(secret)": (w) => createApp({ secret: w }),
  "createApp(workflows)": (w, { runtime }) => createApp({ runtime, workflows: w }),
  bearer: (w) => bearer(w),
  "bearer([])": (w) => bearer([w]),
  runWorker: (w) => runWorker(w),
  fulfil: (w) => fulfil(w),
  "fulfil(locks)": (w, { sql }) => fulfil({ ...sql, locks: w }),
  "fulfil(group)": (w, { sql }) => fulfil({ ...sql, group: w }),
  emf: (w) => emf(w),
  "emf(dimensions)": (w) => emf({ dimensions: w }),
  logTelemetry: (w) => logTelemetry(w),
  metricTelemetry: (w) => metricTelemetry(w),
  combineTelemetry: (w) => combineTelemetry(w),
};

const describeWrong = (wrong: unknown) =>
  typeof wrong === "string"
    ? JSON.stringify(wrong.slice(0, 20))
    : typeof wrong === "object"
      ? JSON.stringify(wrong)
      : String(wrong);

test.each(Object.entries({ ...LOCKS, ...STOCK, ...DATABASE, ...STEPS, ...FUNCTIONS }))(
  "%s answers any value with a result or an error of its own",
  async (_, call) => {
    const internal: string[] = [];
    for (const wrong of WRONG) {
      const calling = (async () => call(wrong as never, shop))();
      const [answer] = await Promise.allSettled([within(5_000, calling)]);
      if (answer.status === "fulfilled") {
        const release = (answer.value as { unlock?: () => Promise<unknown> } | undefined)?.unlock;
        await release?.call(answer.value);
        continue;
      }
      const { reason } = answer;
      const message = String(reason?.message ?? reason);
      if (INTERNAL.test(message) || /within|in time/.test(message))
        internal.push(`${describeWrong(wrong)}: ${message}`);
    }
    expect(internal).toEqual([]);
  },
);

test("wrong arguments that were internal errors are named", async () => {
  const { sql: store, runtime, fence } = shop;
  const { database, journal } = store;
  const bad = (value: unknown) => value as never;
  await expect(database.batch(bad(["SELECT 1"]))).rejects.toThrow(
    'a statement must be made by sql`…`, not the string "SELECT 1"',
  );
  await expect(database.transaction((tx) => tx.commit(bad(undefined)))).rejects.toThrow(
    "statements must be a list such as [sql`…`], not undefined",
  );
  const account = runtime.entity(count, "b");
  await expect(account.call("add", 5, bad(undefined))).rejects.toThrow(
    "operation id must be a string, not undefined",
  );
  await expect(account.call(bad("x"), bad(5), { operationId: "1" })).rejects.toThrow(
    'the entity count has no handler "x"',
  );
  await expect(journal.setLimits("q", bad("m"))).rejects.toThrow(
    'limits must be an object such as { concurrency: 5 }, not the string "m"',
  );
  await expect(claimFence(bad({}), bad({}), fence)).rejects.toThrow(
    "database must be the database of a store, not an object",
  );
  await expect(claimFence(database, bad({}), fence)).rejects.toThrow(
    "tx must be a transaction of the database, not an object",
  );
  const handler = lockedHandler(store.locks, { name: "j" }, async () => 1);
  await expect(handler({}, bad(undefined))).rejects.toThrow(
    "context.getRemainingTimeInMillis must be a function, not undefined",
  );
});

test("sql is no function: a text of a user would become SQL", () => {
  expect(() => sql("SELECT 1" as never)).toThrow("sql is the tag of a template");
});

test("wrong arguments have written nothing", async () => {
  const { inventory, database } = shop.sql;
  expect(await inventory.get("teapot")).toMatchObject({ onHand: 10, supplied: 10 });
  expect(await inventory.list()).toHaveLength(1);
  expect(await database.read(sql`SELECT COUNT(*) AS orders FROM lockstep_order`)).toEqual([
    { orders: 0n },
  ]);
});
