import { IdempotencyConfig, makeIdempotent } from "@aws-lambda-powertools/idempotency";
import { CachePersistenceLayer } from "@aws-lambda-powertools/idempotency/cache";
import type { BasePersistenceLayer } from "@aws-lambda-powertools/idempotency/persistence";
import { Redis } from "ioredis";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { Journal } from "../../core/journal/journal.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { JournalPersistenceLayer } from "../../functions/powertools/index.ts";
import { open } from "../../infra/open.ts";
import { lambdaContext } from "../support/lambda.ts";
import { anyPrefix, redisServer } from "../support/redis-under-test.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

/** The records of one store, as several processes see them. */
interface Records {
  /** The layer of one process. `afterRead` runs when the process has read what another one has in progress. */
  layer(afterRead?: () => Promise<void>): BasePersistenceLayer;
}

/** How long the journals were told to keep results, in milliseconds. */
const kept: number[] = [];

/** A client of Redis for Powertools' own layer. */
function cacheRecords(): Records {
  const [port = 0] = redisServer("redis").ports;
  const redis = new Redis({ port, keyPrefix: anyPrefix() });
  onTestFinished(() => void redis.disconnect());
  const client = {
    async set(key: unknown, value: unknown, options?: unknown) {
      const { EX, NX } = options as { EX: number; NX?: boolean };
      return NX
        ? redis.set(String(key), String(value), "EX", EX, "NX")
        : redis.set(String(key), String(value), "EX", EX);
    },
    get: (key: string) => redis.get(key),
    del: (keys: string[]) => redis.del(...keys),
  };
  return {
    layer(afterRead = async () => {}) {
      const get = async (key: string) => {
        const read = await client.get(key);
        await afterRead();
        return read;
      };
      return new CachePersistenceLayer({ client: { ...client, get } });
    },
  };
}

function journalRecords(original: Journal): Records {
  const journal: Journal = {
    ...original,
    finish(run, request) {
      if (request.status === "completed") kept.push(request.keep);
      return original.finish(run, request);
    },
  };
  return {
    layer(afterRead = async () => {}) {
      const claim: Journal["claim"] = async (...given) => {
        const claimed = await journal.claim(...given);
        await afterRead();
        return claimed;
      };
      return new JournalPersistenceLayer(async () => ({ ...journal, claim }));
    },
  };
}

async function sqliteRecords(): Promise<Records> {
  const { file, remove } = await temporaryFile();
  const { journal, close } = await open(`sqlite:${file}`);
  onTestFinished(async () => {
    await close();
    await remove();
  });
  return journalRecords(journal);
}

/** An idempotent function of one process, whose invocation has `left` milliseconds. */
function idempotent<T>(
  persistenceStore: BasePersistenceLayer,
  work: (order: { id: string }) => Promise<T>,
  left = 60_000,
  config: ConstructorParameters<typeof IdempotencyConfig>[0] = {},
) {
  const options = new IdempotencyConfig({ eventKeyJmesPath: "id", ...config });
  options.registerLambdaContext(lambdaContext(() => left));
  return makeIdempotent(async (order: { id: string; amount?: number }) => work(order), {
    persistenceStore,
    config: options,
    keyPrefix: "charge",
  });
}

const order = { id: "7" };

/** In one process, the lease of a first execution has ended, and the next one of its key goes on, until `ends` are settled. */
async function twoExecutions(
  layer: BasePersistenceLayer,
  first = async (end: Promise<string>) => end,
) {
  const ends = [Promise.withResolvers<string>(), Promise.withResolvers<string>()] as const;
  const late = idempotent(layer, () => first(ends[0].promise), 100)(order);
  late.catch(() => {});
  await pause(200);
  const next = idempotent(layer, () => ends[1].promise)(order);
  await pause(50);
  return { late, next, ends };
}

/**
 * B reads that A is in progress. A completes, and its time is over, before B decides about what it has read. Resolves to
 * the number of executions when a third call has been answered.
 */
async function chargeTwice(records: Records): Promise<number> {
  let charges = 0;
  const charge = async () => {
    charges += 1;
    return { charges };
  };
  const [begun, going] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slow = async () => {
    begun.resolve();
    await going.promise;
    return charge();
  };
  const a = idempotent(records.layer(), slow, 60_000)(order);
  await begun.promise;
  const afterRead = async () => {
    going.resolve();
    await a;
    const later = Date.now() + 61_000;
    vi.spyOn(Date, "now").mockReturnValue(later);
  };
  onTestFinished(() => void vi.restoreAllMocks());
  await idempotent(records.layer(afterRead), charge)(order).catch(() => {});
  expect(await idempotent(records.layer(), charge)(order)).toEqual({ charges });
  return charges;
}

describe("an orphan that is none any more when it is recovered", () => {
  test("is overwritten by Powertools' own layer on Redis: the function runs twice", async () => {
    expect(await chargeTwice(cacheRecords())).toBe(2);
  });

  test("stays as it is in a journal: the function runs once", async () => {
    expect(await chargeTwice(journalRecords(memoryJournal()))).toBe(1);
    expect(await chargeTwice(await sqliteRecords())).toBe(1);
  });
});

describe.each([
  ["memory", async () => journalRecords(memoryJournal())],
  ["sqlite", sqliteRecords],
])("idempotency in a journal on %s", (_, openRecords) => {
  test("a function runs once per key, and a second caller meanwhile is told so", async () => {
    const records = await openRecords();
    const [begun, going] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let runs = 0;
    const work = async ({ id }: { id: string }) => {
      runs += 1;
      begun.resolve();
      await going.promise;
      return { paid: id };
    };
    const own = records.layer();
    const first = idempotent(own, work)(order);
    await begun.promise;
    const inProgress = { name: "IdempotencyAlreadyInProgressError" };
    await expect(idempotent(own, work)(order)).rejects.toMatchObject(inProgress);
    await expect(idempotent(records.layer(), work)(order)).rejects.toMatchObject(inProgress);
    going.resolve();
    expect(await first).toEqual({ paid: "7" });
    expect(await idempotent(records.layer(), work)(order)).toEqual({ paid: "7" });
    expect(runs).toBe(1);
    expect(await idempotent(records.layer(), work)({ id: "8" })).toEqual({ paid: "8" });
  });

  test("a function that has failed runs again", async () => {
    const records = await openRecords();
    const failing = idempotent(records.layer(), () => Promise.reject(new Error("away")));
    await expect(failing(order)).rejects.toThrow("away");
    expect(await idempotent(records.layer(), async () => "paid")(order)).toBe("paid");
  });

  test("one of several callers takes an orphan over, and its late holder overwrites nothing", async () => {
    const records = await openRecords();
    const late = Promise.withResolvers<string>();
    const begun = Promise.withResolvers<void>();
    const going = Promise.withResolvers<void>();
    const hang = () => {
      begun.resolve();
      return late.promise;
    };
    const orphan = idempotent(records.layer(), hang, 100)(order);
    await begun.promise;
    await pause(200);
    let runs = 0;
    const again = async () => {
      runs += 1;
      await going.promise;
      return "second";
    };
    const all = [1, 2, 3].map(() => idempotent(records.layer(), again)(order));
    let refused = 0;
    for (const one of all) {
      one.catch(() => {
        refused += 1;
      });
    }
    await until(() => refused === 2);
    going.resolve();
    const answers = await Promise.allSettled(all);
    expect(runs).toBe(1);
    expect(answers.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    late.resolve("first");
    await expect(orphan).rejects.toMatchObject({ name: "IdempotencyPersistenceLayerError" });
    expect(await idempotent(records.layer(), again)(order)).toBe("second");
  });

  test("a function that fails after its lease does not free the record of the next one", async () => {
    const layer = (await openRecords()).layer();
    const { late, next, ends } = await twoExecutions(layer);
    ends[0].reject(new Error("away"));
    await expect(late).rejects.toThrow("away");
    const third = idempotent(layer, async () => "third")(order);
    await expect(third).rejects.toMatchObject({ name: "IdempotencyAlreadyInProgressError" });
    ends[1].resolve("second");
    expect(await next).toBe("second");
    expect(await idempotent(layer, async () => "third")(order)).toBe("second");
  });

  test("a result after its lease is refused in the process that executes the next one", async () => {
    const layer = (await openRecords()).layer();
    const { late, next, ends } = await twoExecutions(layer);
    ends[0].resolve("first");
    await expect(late).rejects.toMatchObject({ name: "IdempotencyPersistenceLayerError" });
    ends[1].resolve("second");
    expect(await next).toBe("second");
    expect(await idempotent(layer, async () => "third")(order)).toBe("second");
  });

  test("a function around another one keeps its own record", async () => {
    const layer = (await openRecords()).layer();
    const inner = idempotent(layer, async () => "inner");
    const around = async (end: Promise<string>) => (await inner({ id: "8" })) + (await end);
    const { late, next, ends } = await twoExecutions(layer, around);
    ends[0].resolve("first");
    await expect(late).rejects.toMatchObject({ name: "IdempotencyPersistenceLayerError" });
    ends[1].resolve("second");
    expect(await next).toBe("second");
    expect(await idempotent(layer, async () => "third")({ id: "8" })).toBe("inner");
  });

  test("behind a middleware that awaits, a late failure does not free the record of the next function", async () => {
    const layer = (await openRecords()).layer();
    const work = idempotent(layer, async () => "third");
    // Powertools' middleware for middy calls its layer so: what its calls have entered ends with each of them.
    const begin = async (left: number) => {
      await pause(1);
      await layer.saveInProgress(order, left);
    };
    layer.configure({
      config: new IdempotencyConfig({ eventKeyJmesPath: "id" }),
      keyPrefix: "charge",
    });
    await begin(50);
    await pause(100);
    await begin(60_000);
    await layer.deleteRecord(order);
    await expect(work(order)).rejects.toMatchObject({ name: "IdempotencyAlreadyInProgressError" });
    await layer.saveSuccess(order, "second");
    expect(await work(order)).toBe("second");
  });

  test("another payload under the same key is refused, and a result is kept as long as asked for", async () => {
    const records = await openRecords();
    const config = { payloadValidationJmesPath: "amount", expiresAfterSeconds: 100 };
    const pay = (amount: number) =>
      idempotent(records.layer(), async () => amount, 60_000, config)({ ...order, amount });
    expect(await pay(1)).toBe(1);
    expect(await pay(1)).toBe(1);
    await expect(pay(2)).rejects.toMatchObject({ name: "IdempotencyValidationError" });
    expect(kept.at(-1)).toBeGreaterThan(90_000);
    expect(kept.at(-1)).toBeLessThan(101_000);
  });

  test("a finished record answers without payload validation, and an orphan is taken over with another payload", async () => {
    const records = await openRecords();
    const validated = { payloadValidationJmesPath: "amount" };
    const pay = (id: string, amount: number, config = {}, left = 60_000) =>
      idempotent(records.layer(), async () => amount, left, config)({ id, amount });
    expect(await pay("7", 1, validated)).toBe(1);
    expect(await pay("7", 2)).toBe(1);
    const hang = () => new Promise<number>(() => {});
    void idempotent(records.layer(), hang, 50, validated)({ id: "8", amount: 1 });
    await until(async () => (await pay("8", 2, validated).catch(() => 0)) === 2);
    await expect(pay("8", 1, validated)).rejects.toMatchObject({
      name: "IdempotencyValidationError",
    });
  });

  test("a function without the time of its invocation's end runs, however long its record is kept", async () => {
    const records = await openRecords();
    const week = new IdempotencyConfig({ eventKeyJmesPath: "id", expiresAfterSeconds: 604_800 });
    const persistenceStore = records.layer();
    const pay = async (_order: { id: string }) => "paid";
    const work = makeIdempotent(pay, { persistenceStore, config: week });
    expect(await work(order)).toBe("paid");
    expect(await work(order)).toBe("paid");
  });

  test("a replay in the cache of a process expires with its record", async () => {
    const records = await openRecords();
    const config = { expiresAfterSeconds: 2, useLocalCache: true };
    let runs = 0;
    const work = async () => {
      runs += 1;
      return runs;
    };
    expect(await idempotent(records.layer(), work, 60_000, config)(order)).toBe(1);
    const cached = idempotent(records.layer(), work, 60_000, config);
    expect(await cached(order)).toBe(1);
    await pause(3_000);
    expect(await cached(order)).toBe(2);
  });

  test("a record whose result could not be stored is free when its lease has ended", async () => {
    const records = await openRecords();
    const layer = records.layer();
    const unstorable = idempotent(layer, async () => ({ run() {} }), 500);
    await expect(unstorable(order)).rejects.toMatchObject({
      name: "IdempotencyPersistenceLayerError",
    });
    const work = idempotent(layer, async () => "paid");
    await expect(work(order)).rejects.toMatchObject({ name: "IdempotencyAlreadyInProgressError" });
    await until(async () => (await work(order).catch(() => "")) === "paid");
  });
});
