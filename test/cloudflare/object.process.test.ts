import { describe, expect, test } from "vitest";
import { z } from "zod";
import { sql } from "../../core/database/sql.ts";
import { createRuntime, entity } from "../../core/steps/index.ts";
import { openDurableObject } from "../../core/stores/cloudflare/index.ts";
import {
  ObjectDatabase,
  objectDatabase,
  type SendCall,
} from "../../core/stores/cloudflare/object-database.ts";
import { mapConcurrent } from "../../functions/invocation/map-concurrent.ts";
import { account } from "../support/account.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { claimOf, newRunId } from "../support/runs.ts";
import { pause, until } from "../support/until.ts";
import { startWorkerd } from "../support/workerd.ts";
import { objectsUnderTest } from "../support/workerd-under-test.ts";

const { workerd } = objectsUnderTest();

/** A shop whose clients lose the answers to calls while `loses` says so. */
async function shopOf(name: string, quantity: number, loses = () => false) {
  const getByName = (path: string) => {
    const stub = workerd().objects.getByName(path);
    const lockstep = async (call: unknown) => {
      const answer = await stub.lockstep(call);
      if (loses()) throw new Error("the answer was lost");
      return answer;
    };
    return { lockstep };
  };
  const shop = openDurableObject({ getByName }, name);
  await shop.inventory.set({ sku: "teapot", quantity, operationId: "count" });
  return { ...shop, stock: () => shop.inventory.get("teapot") };
}

test("the Worker of the docs sells, and its object executes an order", async () => {
  const { ask, objects, stop } = await startWorkerd("./examples/cloudflare.js");
  try {
    const shop = openDurableObject(objects, "teapots");
    await shop.inventory.set({ sku: "teapot", quantity: 5, operationId: "count" });
    expect(await ask("sale")).toMatchObject({ outcome: "applied", remaining: 4 });
    const { runId, status } = await ask("order");
    expect(status).toBe("suspended");
    await until(async () => (await shop.inventory.get("teapot"))?.onHand === 3);
    expect(runId).not.toBe("");
  } finally {
    await stop();
  }
});

describe("an object's alarm", () => {
  test("executes a run that was started, and wakes it after its sleep", async () => {
    const shop = await shopOf("alarm", 5);
    expect(await workerd().ask("alarm?start&id=run-1")).toBe("suspended");
    await until(async () => (await shop.journal.show("run-1"))?.status === "completed");
    expect(await shop.stock()).toMatchObject({ onHand: 3, sold: 2 });
  });

  test("executes a run that was forked", async () => {
    const { journal } = await shopOf("forked", 5);
    await workerd().ask("forked?start&id=run-1");
    await until(async () => (await journal.show("run-1"))?.status === "completed");
    expect(await workerd().ask("forked?wake")).toBeNull();
    await createRuntime({ journal }).fork("run-1", { from: "second", as: "run-2" });
    await until(async () => (await journal.show("run-2"))?.status === "completed");
  });

  test("handles the operations that an entity was told", async () => {
    const { journal } = await shopOf("told", 5);
    const ada = createRuntime({ journal }).entity(account, "ada");
    await ada.tell("deposit", 5, { operationId: "1" });
    await until(async () => (await ada.state()).balance === 5);
  });

  test("comes after a pause for an operation that only newer code can handle", async () => {
    const { journal } = await shopOf("newer", 5);
    const newer = entity({ name: "account", state: z.any(), initial: null }, (on) => ({
      close: on(z.null(), async () => ({ state: "closed" })),
    }));
    const runtime = createRuntime({ journal });
    await runtime.entity(newer, "ada").tell("close", null, { operationId: "1" });
    expect(await workerd().ask("newer?wake")).toBeGreaterThan(5_000);
  });

  test("comes after a pause for a run whose next step needs more time than an alarm has", async () => {
    const { journal } = await shopOf("long-step", 5);
    await workerd().ask("long-step?call=1&id=run-1&budget=11m");
    await until(async () => (await journal.show("run-1"))?.reason === "deadline");
    expect(await workerd().ask("long-step?wake")).toBeGreaterThan(5_000);
  });

  test("executes a run that is started during the slow step of another one", async () => {
    const { journal } = await shopOf("slow-step", 5);
    await workerd().ask("slow-step?call=6000&id=slow");
    await until(async () => (await journal.find("slow"))?.status === "running");
    await workerd().ask("slow-step?call=1&id=quick");
    await until(async () => (await journal.find("quick"))?.status === "completed");
    expect((await journal.find("slow"))?.status).toBe("running");
  });

  test("wakes a run during the slow step of another one", async () => {
    const { journal } = await shopOf("nap", 5);
    await workerd().ask("nap?start&id=nap");
    await workerd().ask("nap?call=8000&id=slow");
    await until(async () => (await journal.find("nap"))?.status === "completed");
    expect((await journal.find("slow"))?.status).toBe("running");
  });

  test("gives a run a signal of the object's own method during the slow step of another one", async () => {
    const { journal } = await shopOf("paid", 5);
    await workerd().ask("paid?order&id=order");
    await until(async () => (await journal.find("order"))?.status === "parked");
    await workerd().ask("paid?call=8000&id=slow");
    await until(async () => (await journal.find("slow"))?.status === "running");
    await workerd().ask("paid?pay&id=order");
    await until(async () => (await journal.find("order"))?.status === "completed");
    expect((await journal.find("slow"))?.status).toBe("running");
  });

  test("that finds nothing to do leaves the time of the next one as it is", async () => {
    const { journal } = await shopOf("asleep", 5);
    await workerd().ask("asleep?start&id=run-1");
    await until(async () => (await journal.show("run-1"))?.status === "parked");
    expect(await workerd().ask("asleep?wake")).toBeLessThan(2_000);
  });

  test("is not set for a due run of a workflow that the object does not know", async () => {
    const { journal } = await shopOf("foreign", 5);
    const alarms = () => workerd().ask("foreign?alarms");
    await until(alarms);
    for (let i = 0; i < 20; i += 1) {
      await journal.claim(claimOf(newRunId(), { workflow: "unknown", ttl: 1 }));
      await pause(10);
    }
    expect(await workerd().ask("foreign?start&id=run-2")).toBe("suspended");
    await until(async () => (await journal.show("run-2"))?.status === "completed");
    expect(await alarms()).toBeLessThan(10);
  });
});

describe("a transaction of several calls", () => {
  const count = sql`SELECT n FROM counter`;

  const counterOf = async (name: string) => {
    const database = objectDatabase(workerd().objects, name);
    await database.batch([
      sql`CREATE TABLE counter (n INTEGER NOT NULL) STRICT`,
      sql`INSERT INTO counter VALUES (0)`,
    ]);
    return database;
  };

  test("is repeated when another client has changed what it has read, also if its body hides that", async () => {
    const database = await counterOf("conflict");
    let bodies = 0;
    await database.transaction(async (tx) => {
      bodies += 1;
      const [read] = await tx.batch([count]);
      if (bodies === 1) await database.batch([sql`UPDATE counter SET n = 10`]);
      const next = Number(read?.rows[0]?.n) + 1;
      await tx.commit([sql`UPDATE counter SET n = ${next}`]).catch(() => {});
    });
    expect(bodies).toBe(2);
    expect(await database.read(count)).toEqual([{ n: 11 }]);
  });

  test("leaves nothing behind without a commit, and sees its own changes", async () => {
    const database = await counterOf("left");
    const seen = await database.transaction(async (tx) => {
      await tx.batch([sql`UPDATE counter SET n = n + 5`]);
      return (await tx.batch([count]))[0]?.rows;
    });
    expect(seen).toEqual([{ n: 5 }]);
    expect(await database.read(count)).toEqual([{ n: 0 }]);
  });

  test("that is never the same twice ends with its limit", async () => {
    const database = await counterOf("random");
    const limit = AbortSignal.timeout(300);
    const random = database.transaction(async (tx) => {
      await tx.batch([sql`SELECT random() AS n`]);
      await tx.commit([]);
    }, limit);
    await expect(random).rejects.toMatchObject({ retryable: true });
  });
});

test("an object gets 32 calls of a client at a time, and renewals beyond them", async () => {
  const stub = workerd().objects.getByName("crowd") as { lockstep: SendCall };
  let open = 0;
  let most = 0;
  const { promise: gate, resolve: release } = Promise.withResolvers<void>();
  const database = new ObjectDatabase("crowd", async (call) => {
    open += 1;
    most = Math.max(most, open);
    if (call.queries[0]?.text === "SELECT 1") await gate;
    const answer = await stub.lockstep(call);
    open -= 1;
    return answer;
  });
  const calls = Array.from({ length: 100 }, () => database.batch([sql`SELECT 1`]));
  const renewals = [sql`SELECT 2 AS n`];
  const [renewed] = await database.batch(renewals, undefined, "renewals");
  expect(renewed?.rows).toEqual([{ n: 2 }]);
  release();
  await Promise.all(calls);
  expect(most).toBe(33);
});

test("integers of 64 bits, bytes, and texts with any character arrive unchanged", async () => {
  const database = objectDatabase(workerd().objects, "values");
  const text = "a'\"\\\u2028\u{1f600}\n";
  const bytes = new Uint8Array([0, 255, 10]);
  const most = 2n ** 63n - 1n;
  const [row] = await database.read(
    sql`SELECT ${text} AS text, ${bytes} AS bytes, CAST(${most} AS CHAR(20)) AS most,
      typeof(${1}) AS type, ${null} AS empty, ${1.5} AS real`,
  );
  const expected = { text, bytes, most: String(most), type: "integer", empty: null, real: 1.5 };
  expect(row).toEqual(expected);
});

test("a hundred runs with long inputs outside of ASCII are started with one call", async () => {
  const { journal } = await shopOf("long", 1);
  const input = JSON.stringify("茶".repeat(8_000));
  const runs = Array.from({ length: 100 }, () => claimOf(newRunId(), { input }));
  expect(await journal.start(runs)).toHaveLength(100);
  expect(await journal.show(runs[99]?.runId ?? "")).toMatchObject({ input });
});

test("a sale whose answers are lost is made once, and a lock whose answers are lost is withdrawn", async () => {
  let losses = 0;
  const shop = await shopOf("lossy", 3, () => losses-- > 0);
  const order = { sku: "teapot", quantity: 1, operationId: "order-1" };
  losses = 2;
  expect(await shop.inventory.decrement(order)).toMatchObject({ remaining: 2 });
  losses = 1;
  const lock = await shop.locks.lock("shelf", { ttl: 20_000, wait: 5_000 });
  expect((await shop.locks.inspect("shelf")).holder).toBeDefined();
  losses = 1;
  expect(await lock.unlock()).toBe("released");
  expect(await shop.stock()).toMatchObject({ onHand: 2, sold: 1 });
});

const [ORDERS, UNITS] = EVERY_VERSION ? [2_000, 500] : [80, 20];

test(`a storm of ${ORDERS} orders for ${UNITS} units in a Worker sells exactly ${UNITS}`, async () => {
  const shop = await shopOf("storm", UNITS);
  // Every tenth order arrives twice.
  const orders = Array.from({ length: ORDERS }, (_, i) => `order-${i % 10 === 9 ? i - 1 : i}`);
  const outcomes = new Map<string, string>();
  await mapConcurrent(orders, 8, async (id) => {
    const answered = async () => {
      const { outcome } = await workerd().ask(`storm?sell&id=${id}`);
      return outcome !== "busy" && outcome;
    };
    outcomes.set(id, await until(answered, 120_000));
  });
  expect([...outcomes.values()].filter((one) => one === "applied")).toHaveLength(UNITS);
  expect(await shop.stock()).toMatchObject({ onHand: 0, sold: UNITS, supplied: UNITS });
});
