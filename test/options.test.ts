import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { checkOptionNames } from "../core/lock/options.ts";
import { Codec, createRuntime, entity, Schedule, workflow } from "../core/steps/index.ts";
import { RUNTIME_OPTIONS } from "../core/steps/runtime.ts";
import { createTestRuntime } from "../core/steps/testing.ts";
import { openD1 } from "../core/stores/cloudflare/index.ts";
import { openDynamodb } from "../core/stores/dynamodb/index.ts";
import { EtcdMutex, EtcdSession, etcdElection, openEtcd } from "../core/stores/etcd/index.ts";
import { openMemory } from "../core/stores/memory/index.ts";
import { openMysql } from "../core/stores/mysql/index.ts";
import { openPostgres } from "../core/stores/postgres/index.ts";
import { openRedis } from "../core/stores/redis/index.ts";
import { openRedisRest } from "../core/stores/redis/rest.ts";
import { openRedlock } from "../core/stores/redlock/index.ts";
import { openSqlite, type SqlStore } from "../core/stores/sqlite/index.ts";
import { openZooKeeper } from "../core/stores/zookeeper/index.ts";
import { lockstepObject } from "../functions/cloudflare/index.ts";
import {
  etcdGatewayClient,
  etcdInventory,
  etcdLocks,
  lockedFetch,
} from "../functions/edge/index.ts";
import { bearer, createApp, httpHandler } from "../functions/http/index.ts";
import { serveHttp } from "../functions/http/node.ts";
import { APP_OPTIONS } from "../functions/http/options.ts";
import {
  lockedHandler,
  queueHandler,
  scheduleHandler,
  sqs,
  stockHandler,
  sweepHandler,
  withSecret,
} from "../functions/lambda/index.ts";
import { emf } from "../functions/telemetry/index.ts";
import { fulfil, runWorker } from "../functions/worker/index.ts";
import { type AnyStore, open } from "../infra/open.ts";
import { flow } from "./support/flow.ts";

/** What a caller of plain JavaScript passes. */
const wrong = (options: object) => options as never;

const endpoints = ["127.0.0.1:1"];
const region = "eu-west-1";
const etcd = etcdGatewayClient({ endpoints });
const lock = { ttl: "10s", wait: 0 };
const of = { host: "127.0.0.1", user: "shop", database: "shop" };
const placeOrder = flow(async () => "placed");
const count = entity({ name: "count", state: z.number(), initial: 0 }, (on) => ({
  add: on(z.number(), async ({ state }, n) => ({ state: state + n })),
}));

let shop: SqlStore;

beforeAll(async () => {
  shop = await openSqlite(":memory:");
  await shop.inventory.set({ sku: "teapot", quantity: 10, operationId: "count-1" });
});

afterAll(() => shop.close());

const runtime = () => createRuntime({ journal: shop.journal, locks: shop.locks });
const input = { n: 1 };

/** Runs a workflow with this body, and throws the error by which the run is blocked or has failed. */
async function within(body: Parameters<typeof flow>[0]) {
  const outcome = await runtime().execute(flow(body), input);
  if ("error" in outcome) throw new TypeError(outcome.error.message);
}

async function elected(
  use: (election: Awaited<ReturnType<typeof shop.elections.open>>) => unknown,
) {
  await using election = await shop.elections.open("leader");
  await use(election);
}

const decrement = { sku: "teapot", quantity: 1, operationId: "o-1" };

/** The call in the message, a misspelt option, the one that was meant, and the call with it. */
const LOCKS: Doors = [
  ["lock", "tll", "ttl", (o) => shop.locks.lock("a", wrong({ ...lock, ...o }))],
  ["tryLock", "lockdelay", "lockDelay", (o) => shop.locks.tryLock("a", wrong({ ...lock, ...o }))],
  ["lockAll", "waits", "wait", (o) => shop.locks.lockAll(["a"], wrong({ ...lock, ...o }))],
  [
    "withLock",
    "maxhold",
    "maxHold",
    (o) => shop.locks.withLock("a", wrong({ ...lock, ...o }), async () => 1),
  ],
  ["release", "fences", "fence", (o) => shop.locks.release("a", wrong(o))],
  ["elections.open", "tll", "ttl", (o) => shop.elections.open("a", wrong(o))],
  ["campaign", "singal", "signal", (o) => elected((one) => one.campaign("host-7", wrong(o)))],
  ["observe", "signl", "signal", (o) => elected((one) => one.observe(wrong(o)).next())],
];

const STORES: Doors = [
  ["openMemory", "onEvnt", "onEvent", (o) => openMemory(wrong(o))],
  ["openSqlite", "creat", "create", (o) => openSqlite(":memory:", wrong(o))],
  ["open", "labl", "label", (o) => open("memory:", wrong(o))],
  ["openMysql", "maxWaiter", "maxWaiters", (o) => openMysql(of, wrong(o))],
  ["openPostgres", "lable", "label", (o) => openPostgres(of, wrong(o))],
  ["openEtcd", "prefx", "prefix", (o) => openEtcd({ endpoints }, wrong(o))],
  ["etcd", "tokns", "tokens", (o) => openEtcd(wrong({ endpoints, ...o }))],
  ["etcd", "time_out", "timeout", (o) => etcdGatewayClient(wrong({ endpoints, ...o }))],
  ["etcdLocks", "prefix_", "prefix", (o) => etcdLocks(etcd, wrong(o))],
  ["etcdInventory", "onevent", "onEvent", (o) => etcdInventory(etcd, wrong(o))],
  ["EtcdSession.open", "leas", "lease", (o) => EtcdSession.open(etcd, wrong(o))],
  ["EtcdMutex", "rentrant", "reentrant", (o) => new EtcdMutex(etcd, wrong({}), "a", wrong(o))],
  ["etcdElection", "resme", "resume", (o) => etcdElection(etcd, wrong({}), "a", wrong(o))],
  ["openRedis", "replica", "replicas", (o) => openRedis({ host: "127.0.0.1" }, wrong(o))],
  ["redis", "databse", "database", (o) => openRedis(wrong({ host: "127.0.0.1", ...o }))],
  [
    "openRedisRest",
    "perfix",
    "prefix",
    (o) => openRedisRest({ url: "https://a.example", token: "t" }, wrong(o)),
  ],
  [
    "openRedlock",
    "masterTimout",
    "masterTimeout",
    (o) => openRedlock([{ host: "127.0.0.1" }], wrong(o)),
  ],
  ["openDynamodb", "lebel", "label", (o) => openDynamodb({ region, table: "shop" }, wrong(o))],
  ["dynamodb", "endpont", "endpoint", (o) => openDynamodb(wrong({ region, table: "shop", ...o }))],
  ["openZooKeeper", "rot", "root", (o) => openZooKeeper({ servers: endpoints }, wrong(o))],
  ["zookeeper", "usr", "user", (o) => openZooKeeper(wrong({ servers: endpoints, ...o }))],
  [
    "openD1",
    "onStockEvents",
    "onStockEvent",
    (o) => openD1(wrong({ prepare: () => {} }), wrong(o)),
  ],
  [
    "open of a lockstepObject",
    "labels",
    "label",
    (o) => lockstepObject(class {}).open(wrong({ getByName: () => ({}) }), "shop", wrong(o)),
  ],
];

const STOCK: Doors = [
  ["decrement", "fense", "fence", (o) => shop.inventory.decrement({ ...decrement, ...o })],
  ["set", "singal", "signal", (o) => shop.inventory.set({ ...decrement, ...o })],
  ["confirm", "fenc", "fence", (o) => shop.inventory.confirm(wrong({ ...decrement, ...o }))],
  [
    "decrementMany",
    "fences",
    "fence",
    (o) => shop.inventory.decrementMany({ sku: "teapot", orders: [decrement], ...o }),
  ],
  ["inventory.list", "perfix", "prefix", (o) => shop.inventory.list(wrong(o))],
  ["inventory.history", "befor", "before", (o) => shop.inventory.history("teapot", wrong(o))],
  ["inventory.reservations", "limits", "limit", (o) => shop.inventory.reservations("t", wrong(o))],
];

const definition = { name: "order", version: 1, input: z.object({ n: z.number() }) };
const state = { name: "count", state: z.number(), initial: 0 };

const STEPS: Doors = [
  ["createRuntime", "workflow", "workflows", (o) => createRuntime({ journal: shop.journal, ...o })],
  ["createTestRuntime", "fakes", "fake", (o) => createTestRuntime({ journal: shop.journal, ...o })],
  ["workflow", "timeOut_", "timeout", (o) => workflow({ ...definition, ...o }, async () => 1)],
  ["entity", "retri", "retry", (o) => entity({ ...state, ...o }, () => ({}))],
  ["Schedule", "timeZone_", "timezone", (o) => new Schedule("@daily", { input: () => 1, ...o })],
  ["Codec.compressed", "abov", "above", (o) => Codec.compressed(wrong(o))],
  ["Codec.encrypted", "curent", "current", (o) => Codec.encrypted(wrong({ keys: {}, ...o }))],
  ["execute", "lockwait", "lockWait", (o) => runtime().execute(placeOrder, input, wrong(o))],
  ["start", "singelton", "singleton", (o) => runtime().start(placeOrder, input, wrong(o))],
  [
    "debounce",
    "form",
    "for",
    (o) => runtime().start(placeOrder, input, { debounce: wrong({ key: "a", for: 1, ...o }) }),
  ],
  ["run", "priorty", "priority", (o) => runtime().run(placeOrder, input, wrong(o))],
  ["resume", "dedline", "deadline", (o) => runtime().resume("a", wrong(o))],
  ["signal", "dedupeID_", "dedupeId", (o) => runtime().signal("a", "paid", 1, wrong(o))],
  [
    "update",
    "waits",
    "wait",
    (o) => runtime().update("a", "paid", 1, wrong({ dedupeId: "1", ...o })),
  ],
  ["fork", "form", "from", (o) => runtime().fork("a", wrong(o))],
  [
    "call",
    "operationID_",
    "operationId",
    (o) => runtime().entity(count, "a").call("add", 1, wrong(o)),
  ],
  ["tell", "signl", "signal", (o) => runtime().entity(count, "a").tell("add", 1, wrong(o))],
  ["setLimits", "concurency", "concurrency", (o) => shop.journal.setLimits("q", wrong(o))],
  ["rate", "prr", "per", (o) => shop.journal.setLimits("q", wrong({ rate: { runs: 1, ...o } }))],
  ["step", "timeot", "timeout", (o) => within((ctx) => ctx.step("a", wrong(o), async () => 1))],
  [
    "retry",
    "atempts",
    "attempts",
    (o) => within((ctx) => ctx.step("a", { retry: wrong(o) }, async () => 1)),
  ],
  [
    "lock",
    "onbusy",
    "onBusy",
    (o) => within((ctx) => ctx.step("a", { lock: wrong({ names: "a", ...o }) }, async () => 1)),
  ],
  [
    "step.map",
    "concurency",
    "concurrency",
    (o) => within((ctx) => ctx.step.map("a", [1], wrong({ keyOf: String, ...o }), async () => 1)),
  ],
  [
    "waitFor",
    "timout",
    "timeout",
    (o) => within((ctx) => ctx.waitFor("paid", z.number(), wrong({ timeout: 1, ...o }))),
  ],
  [
    "child",
    "detach",
    "detached",
    (o) => within((ctx) => ctx.child("a", placeOrder, input, wrong(o))),
  ],
  [
    "children",
    "concurency",
    "concurrency",
    (o) =>
      within((ctx) => ctx.children("a", placeOrder, [input], wrong({ keyOf: () => "1", ...o }))),
  ],
  [
    "continueAsNew",
    "dropUndo",
    "dropUndos",
    (o) => within((ctx) => ctx.continueAsNew(input, wrong(o))),
  ],
];

const fetch = () => new Response();

const FUNCTIONS: Doors = [
  [
    "lockedHandler",
    "reserv",
    "reserve",
    (o) => lockedHandler(shop.locks, { name: "a", ...o }, async () => 1),
  ],
  ["queueHandler", "parkd", "parked", (o) => queueHandler(runtime, placeOrder, wrong(o))],
  ["poison", "isPoisn", "isPoison", (o) => queueHandler(runtime, placeOrder, { poison: wrong(o) })],
  ["stockHandler", "onAnswr", "onAnswer", (o) => stockHandler(shop, wrong(o))],
  ["poison", "two", "to", (o) => stockHandler(shop, { poison: wrong(o) })],
  [
    "scheduleHandler",
    "evry",
    "every",
    (o) => scheduleHandler(runtime, placeOrder, wrong({ input: () => input, ...o })),
  ],
  ["sweepHandler", "lockwait", "lockWait", (o) => sweepHandler(runtime, wrong(o))],
  ["sqs", "endpiont", "endpoint", (o) => sqs(wrong(o))],
  ["withSecret", "maxage", "maxAge", (o) => withSecret("arn:aws:a", async () => shop, wrong(o))],
  ["httpHandler", "reserved", "reserve", (o) => httpHandler({ fetch }, wrong(o))],
  ["createApp", "authorise", "authorize", (o) => createApp(wrong(o))],
  ["limits", "perkey", "perKey", (o) => createApp({ limits: wrong(o) })],
  ["bearer", "scope", "scopes", (o) => bearer([wrong({ token: "0123456789abcdef", ...o })])],
  ["serveHttp", "prot", "port", (o) => serveHttp({ fetch }, wrong(o))],
  [
    "lockedFetch",
    "timout",
    "timeout",
    (o) => lockedFetch(wrong({ etcd: { endpoints }, name: "a", ...o }), async () => fetch()),
  ],
  ["runWorker", "queue", "queues", (o) => runWorker(wrong({ runtime: runtime(), ...o }))],
  ["fulfil", "grup", "group", (o) => fulfil(wrong({ ...shop, ...o }))],
  ["emf", "namspace", "namespace", (o) => emf(wrong({ dimensions: {}, ...o }))],
];

type Doors = readonly (readonly [string, string, string, (options: object) => unknown])[];

describe.each([
  ["locks and elections", LOCKS],
  ["stores", STORES],
  ["stock", STOCK],
  ["workflows", STEPS],
  ["functions", FUNCTIONS],
] as const)("the options of %s", (_, doors) => {
  test.each(doors)("%s refuses the unknown option %s, and names %s", async (...door) => {
    const [call, unknown, nearest, use] = door;
    const using = (async () => use({ [unknown]: undefined }))();
    const message = `unknown option "${unknown}" of ${call}: did you mean "${nearest}"?`;
    await expect(using).rejects.toThrow(message);
    await expect(using).rejects.toThrow(TypeError);
  });
});

test("an option that is like no other is refused with the list of the known ones, without those of the package", () => {
  const names = { ttl: true, wait: true, work: false };
  const check = (options: unknown) => () => checkOptionNames("lock", options, names);
  expect(check({ colour: "red" })).toThrow('unknown option "colour" of lock: it has ttl, wait');
  expect(check({ word: 1 })).toThrow('unknown option "word" of lock: it has ttl, wait');
  expect(check({ ["ttl".repeat(100)]: 1 })).toThrow(/^unknown option "ttlttl.*…" of lock/);
  expect(check({ work: 1, ttl: 1 })).not.toThrow();
  expect(check({ constructor: 1 })).toThrow('unknown option "constructor" of lock');
});

test("options that are no object are refused by their call", () => {
  const check = (options: unknown) => () => checkOptionNames("lock", options, { ttl: true });
  for (const options of [null, 5, "10s", true, () => {}]) {
    expect(check(options)).toThrow(/^the options of lock must be an object, not /);
  }
  expect(check(undefined)).not.toThrow();
});

test("members that options inherit are no options", () => {
  expect(() => checkOptionNames("lock", Object.create({ colour: 1 }), { ttl: true })).not.toThrow();
});

test("a store may be spread into the options of what needs its parts, and is checked all the same", async () => {
  await using opened = await open("sqlite::memory:");
  expect(() => createRuntime({ ...opened, workflows: [placeOrder] })).not.toThrow();
  expect(() => createApp({ ...opened, authorize: bearer(["0123456789abcdef"]) })).not.toThrow();
  expect(() => createRuntime(wrong({ ...opened, worflows: [] }))).toThrow(
    'unknown option "worflows" of createRuntime: did you mean "workflows"?',
  );
  // Whatever a store has, and may have.
  const parts = {
    ...{ locks: 1, elections: 1, close: 1, url: 1, has: 1, inventory: 1, journal: 1, database: 1 },
    ...{ etcd: 1, redis: 1, zookeeper: 1, dynamodb: 1, table: 1, prefix: 1, write: 1 },
  } satisfies Record<Exclude<keyof AnyStore, symbol> | "write", 1>;
  const check = (names: Readonly<Record<string, boolean>>) => () =>
    checkOptionNames("it", parts, names);
  expect(check({ ...RUNTIME_OPTIONS, fake: true })).not.toThrow();
  expect(check(APP_OPTIONS)).not.toThrow();
  expect(check({ group: true, ttl: true, follow: true, abort: true, onPoll: true })).not.toThrow();
});

test("one set of options serves lock and tryLock", async () => {
  const { locks } = await openMemory();
  const options = { ttl: "10s", wait: "5s" } as const;
  await using _ = await locks.lock("report", options);
  expect(await locks.tryLock("report", options)).toBeUndefined();
});
