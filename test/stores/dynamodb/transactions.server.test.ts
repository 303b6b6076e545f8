import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { stockLock } from "../../../core/inventory/inventory.ts";
import type { Journal } from "../../../core/journal/journal.ts";
import type { NewRecord } from "../../../core/journal/records.ts";
import type { RunKey } from "../../../core/journal/runs.ts";
import type { Fence } from "../../../core/lock/fence.ts";
import type { LockStore } from "../../../core/lock/lock.ts";
import { TerminalError } from "../../../core/steps/errors.ts";
import { createRuntime } from "../../../core/steps/runtime.ts";
import { injectFaults } from "../../../core/steps/testing.ts";
import { workflow } from "../../../core/steps/workflow.ts";
import type { Dynamodb } from "../../../core/stores/dynamodb/client/dynamodb.ts";
import { dynamodbInventory } from "../../../core/stores/dynamodb/inventory/index.ts";
import { dynamodbJournal } from "../../../core/stores/dynamodb/journal/index.ts";
import { writeWithin } from "../../../core/stores/dynamodb/own-items.ts";
import { memoryLocks } from "../../../core/stores/memory/locks.ts";
import type { TransactionalInventory } from "../../../core/stores/transactional-inventory.ts";
import {
  anyTable,
  loseAnswer,
  type RequestFault,
  type TestTable,
  watch,
} from "../../support/dynamodb-under-test.ts";
import { newRunId, record, running } from "../../support/runs.ts";
import { sellWithoutPause } from "../../support/sell-without-pause.ts";
import type { Opened } from "../../support/stock-within.ts";
import { pause } from "../../support/until.ts";

let table: TestTable;
let dynamodb: Dynamodb;
let journal: Journal;
let inventory: TransactionalInventory;
let locks: LockStore;
let skus = 0;

beforeAll(async () => {
  table = await anyTable();
  dynamodb = table.open();
  journal = dynamodbJournal(dynamodb);
  inventory = dynamodbInventory(dynamodb);
  locks = memoryLocks();
});

afterAll(async () => {
  await locks.close();
  await dynamodb.close();
});

const stocked = async (quantity: number): Promise<string> => {
  skus += 1;
  const sku = `sku-${skus}`;
  await inventory.set({ sku, quantity, operationId: `${sku}/set` });
  return sku;
};

interface Calling {
  readonly fences?: readonly Fence[];
  readonly signal?: AbortSignal;
  readonly on?: Journal;
}

const transact = (
  run: RunKey,
  key: string,
  body: (tx: Opened) => Promise<NewRecord>,
  { fences = [], signal, on = journal }: Calling = {},
) => {
  if (!on.transact) throw new Error("no transactions");
  return on.transact(run, { key, fences }, body, signal);
};

/** An item of the user's in the same table, as another program would write it. */
const own = (id: string, more: object = {}) => ({
  Put: {
    TableName: new URL(table.url).pathname.slice(1),
    Item: { pk: { S: `own/${id}` }, sk: { S: "x" } },
    ...more,
  },
});
const ownItem = (id: string) => dynamodb.get({ pk: `own/${id}`, sk: "x" });

/** Sells units and writes an item. */
const selling = (sku: string, id: string, fence?: Fence) => async (tx: Opened) => {
  const change = { sku, quantity: 2, operationId: `${id}/sell`, fence };
  const { remaining } = await inventory.within(tx).decrement(change);
  await writeWithin(tx, own(id));
  return record("sell", { kind: "tx", value: `${remaining}` });
};

const recordsOf = async ({ runId }: RunKey) =>
  (await journal.show(runId))?.records.map(({ key }) => key);

/** Opens a journal whose transactions meet a fault. */
function faulty(fault: RequestFault) {
  const watched = watch(table, (operation, ...request) =>
    operation === "TransactWriteItems" ? fault(operation, ...request) : undefined,
  );
  return { ...watched, journal: dynamodbJournal(watched.dynamodb) };
}

describe("a step's transaction", () => {
  test("commits stock, own items and the record together, under the fence, and once", async () => {
    const [run, sku] = [await running(journal), await stocked(9)];
    await using lock = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 0 });
    let bodies = 0;
    const sell = (on: RunKey) =>
      transact(
        on,
        "sell",
        (tx) => {
          bodies += 1;
          return selling(sku, run.runId, lock.fence)(tx);
        },
        { fences: [lock.fence] },
      );
    const first = await sell(run);
    expect(first).toMatchObject({ key: "sell", value: "7", epoch: run.epoch });
    expect(await sell(run)).toEqual(first);
    expect((await journal.show(run.runId))?.records).toEqual([first]);
    expect(await inventory.get(sku)).toMatchObject({ onHand: 7, sold: 2 });
    expect((await inventory.history(sku))[0]?.fence).toBe(String(lock.fence));
    expect(await ownItem(run.runId)).toBeDefined();
    // A record of an earlier epoch is the answer as well.
    await journal.park(run, { reason: "sleep", wakeIn: 0, signalsSeen: 0 });
    const again = await journal.take({ runId: run.runId, owner: "a successor", ttl: 60_000 });
    if (again.kind !== "claimed") throw new Error(again.kind);
    expect(await sell({ ...run, epoch: again.epoch })).toEqual(first);
    await expect(transact(run, "other", selling(sku, newRunId()))).rejects.toMatchObject({
      code: "STALE_RUN",
    });
    expect(bodies).toBe(1);
  });

  test("takes two requests, and both are transactions", async () => {
    const { journal: ours, dynamodb: client, requests } = faulty(() => undefined);
    await using _ = client;
    const run = await running(ours);
    await using lock = await locks.lock(run.runId, { ttl: 60_000, wait: 0 });
    requests.splice(0);
    await transact(run, "a", async () => record("a", { kind: "tx" }), {
      fences: [lock.fence],
      on: ours,
    });
    expect(requests).toEqual(["TransactWriteItems", "TransactWriteItems"]);
  });

  test("changes nothing if its body rejects, and the body gets no SQL", async () => {
    const [run, sku] = [await running(journal), await stocked(9)];
    for (const fault of [new Error("its own"), null, undefined]) {
      const failing = transact(run, "sell", async (tx) => {
        await selling(sku, run.runId)(tx);
        throw fault;
      });
      expect(await failing.catch((error: unknown) => ({ error }))).toEqual({ error: fault });
    }
    const sql = transact(run, "sell", async (tx) => {
      await tx.batch([]);
      return record("sell");
    });
    await expect(sql).rejects.toThrow(/takes no SQL/);
    await expect(transact(run, "sell", async () => record("other"))).rejects.toThrow(RangeError);
    const many = transact(run, "sell", async (tx) => {
      for (let i = 0; i < 98; i += 1) await writeWithin(tx, own(`${run.runId}/${i}`));
      return record("sell");
    });
    await expect(many).rejects.toMatchObject({
      code: "TRANSACTION_REFUSED",
      message: expect.stringContaining("at most 97 writes, not 98"),
    });
    expect(await inventory.get(sku)).toMatchObject({ onHand: 9 });
    expect(await ownItem(run.runId)).toBeUndefined();
    expect(await recordsOf(run)).toEqual([]);
  });

  test("has room for 97 writes and a long result", async () => {
    const run = await running(journal);
    const value = JSON.stringify("é".repeat(300_000));
    const body = async (tx: Opened) => {
      for (let i = 0; i < 97; i += 1) await writeWithin(tx, own(`${run.runId}/${i}`));
      return record("a", { kind: "tx", value });
    };
    expect(await transact(run, "a", body)).toMatchObject({ value });
    expect((await journal.values(run.runId, ["a"])).get("a") === value).toBe(true);
    expect(await ownItem(`${run.runId}/96`)).toBeDefined();
  });

  test("refuses a late fence before the body, and one that was overtaken during the body", async () => {
    const [run, sku] = [await running(journal), await stocked(9)];
    const nextFence = async () => {
      await using lock = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 0 });
      return lock.fence;
    };
    const [early, second] = [await nextFence(), await nextFence()];
    await inventory.claim(second);
    let bodies = 0;
    const sell = (fence: Fence, own?: Fence, overtaking?: Fence) =>
      transact(
        run,
        "sell",
        async (tx) => {
          bodies += 1;
          const sold = await selling(sku, run.runId, own)(tx);
          if (overtaking) await inventory.claim(overtaking);
          return sold;
        },
        { fences: [fence] },
      );
    const late = { code: "FENCED_OUT", presented: early };
    await expect(sell(early)).rejects.toMatchObject(late);
    expect(bodies).toBe(0);
    const [third, fourth] = [await nextFence(), await nextFence()];
    await expect(sell(second, second, third)).rejects.toMatchObject({
      ...{ ...late, presented: second },
      current: String(third),
    });
    // Also when the stock is changed without a fence.
    await expect(sell(third, undefined, fourth)).rejects.toMatchObject({
      ...{ ...late, presented: third },
      current: String(fourth),
    });
    expect(bodies).toBe(2);
    expect(await inventory.get(sku)).toMatchObject({ onHand: 9 });
    expect(await recordsOf(run)).toEqual([]);
  });

  test("claims a fence that is not the step's own before it reads", async () => {
    const [run, sku] = [await running(journal), await stocked(9)];
    const early = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 0 });
    await early.unlock();
    await using next = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 0 });
    await transact(run, "sell", async (tx) => {
      const sold = await selling(sku, run.runId, next.fence)(tx);
      await expect(inventory.claim(early.fence)).rejects.toMatchObject({ code: "FENCED_OUT" });
      return sold;
    });
  });

  test("repeats its body when others have changed the stock since", async () => {
    const [run, sku] = [await running(journal), await stocked(9)];
    let bodies = 0;
    const sold = await transact(run, "sell", async (tx) => {
      bodies += 1;
      const answer = await selling(sku, run.runId)(tx);
      const change = { sku, quantity: 1, operationId: `${run.runId}/other` };
      if (bodies === 1) await inventory.decrement(change);
      return answer;
    });
    expect([bodies, sold.value]).toEqual([2, "6"]);
    expect(await inventory.get(sku)).toMatchObject({ onHand: 6, sold: 3 });
  });

  test("commits beside a client that sells the same sku without a pause", async () => {
    const { journal: slow, dynamodb: client } = faulty((_, pass) => pause(20).then(pass));
    await using _ = client;
    await using busy = table.open();
    const [run, sku] = [await running(journal), await stocked(100_000)];
    await using _seller = sellWithoutPause(dynamodbInventory(busy), sku);
    const sold = await transact(run, "sell", selling(sku, run.runId), { on: slow });
    expect(sold).toMatchObject({ key: "sell" });
  });

  test("fails with the condition of an own item, and changes nothing", async () => {
    const [run, sku] = [await running(journal), await stocked(9)];
    await transact(run, "first", async (tx) => {
      await writeWithin(tx, own(run.runId));
      return record("first");
    });
    const second = transact(run, "second", async (tx) => {
      const change = { sku, quantity: 1, operationId: run.runId };
      await inventory.within(tx).decrement(change);
      await writeWithin(tx, own(run.runId, { ConditionExpression: "attribute_not_exists(pk)" }));
      return record("second");
    });
    await expect(second).rejects.toMatchObject({
      code: "TRANSACTION_REFUSED",
      message: expect.stringContaining("Put on test-"),
      effect: "none",
    });
    expect(await inventory.get(sku)).toMatchObject({ onHand: 9 });
    expect(await recordsOf(run)).toEqual(["first"]);
  });

  test("fails with an item that DynamoDB does not accept, and with two writes of one item", async () => {
    const run = await running(journal);
    for (const items of [
      [{ Put: { TableName: "no-such-table", Item: {} } }],
      [own("a"), own("a")],
    ]) {
      const failing = transact(run, "a", async (tx) => {
        for (const item of items) await writeWithin(tx, item);
        return record("a");
      });
      await expect(failing).rejects.toMatchObject({ code: "TRANSACTION_REFUSED" });
    }
    expect(await recordsOf(run)).toEqual([]);
  });

  test("knows what was first read: a sku that another client creates meanwhile is not overwritten", async () => {
    const run = await running(journal);
    const sku = `new of ${run.runId}`;
    const set = (quantity: number, id: string) => ({ sku, quantity, operationId: `${sku}/${id}` });
    let bodies = 0;
    await transact(run, "a", async (tx) => {
      bodies += 1;
      await inventory.within(tx).set(set(5, "1"));
      if (bodies === 1) await inventory.set(set(100, "2"));
      await inventory.within(tx).decrement(set(1, "3"));
      return record("a");
    });
    expect(bodies).toBe(2);
    expect(await inventory.get(sku)).toMatchObject({ onHand: 4, sold: 1 });
    expect((await inventory.history(sku)).map(({ seq }) => seq)).toEqual([3, 2, 1]);
  });

  test("is repeated when stock that it has looked at was changed before its own change", async () => {
    const [run, sku] = [await running(journal), await stocked(9)];
    const change = (quantity: number, id: string) => ({
      sku,
      quantity,
      operationId: `${sku}/${id}`,
    });
    await transact(run, "a", async (tx) => {
      const { onHand = 0 } = (await inventory.within(tx).get(sku)) ?? {};
      await inventory.decrement(change(4, "other"));
      await inventory.within(tx).set(change(onHand + 1, "more"));
      return record("a");
    });
    expect(await inventory.get(sku)).toMatchObject({ onHand: 6 });
  });

  test("takes an operation id once over all skus, and goes on after a refused change", async () => {
    const [run, a, b] = [await running(journal), await stocked(9), await stocked(9)];
    const operationId = `${run.runId}/once`;
    await transact(run, "a", async (tx) => {
      const stock = inventory.within(tx);
      await stock.decrement({ sku: a, quantity: 1, operationId });
      await expect(stock.decrement({ sku: b, quantity: 1, operationId })).rejects.toMatchObject({
        code: "OPERATION_CONFLICT",
      });
      const unknown = { sku: "no such sku", quantity: 1, operationId: `${operationId}/2` };
      await expect(stock.decrement(unknown)).rejects.toMatchObject({ code: "UNKNOWN_SKU" });
      const orders = Array.from({ length: 91 }, (_, i) => ({ operationId: `${i}`, quantity: 1 }));
      await expect(stock.decrementMany({ sku: b, orders })).rejects.toThrow("at most 90 orders");
      return record("a");
    });
    expect(await inventory.get(a)).toMatchObject({ onHand: 8 });
    expect(await inventory.get(b)).toMatchObject({ onHand: 9 });
  });

  test("refuses the stock of another table", async () => {
    await using other = (await anyTable()).open();
    const run = await running(journal);
    const failing = transact(run, "a", async (tx) => {
      dynamodbInventory(other).within(tx);
      return record("a");
    });
    await expect(failing).rejects.toThrow(TypeError);
  });

  test.each([[{}], [{ Put: {}, Delete: {} }], [{ Get: {} }], [undefined], ["Put"]])(
    "refuses %j as an item before any request",
    async (wrong) => {
      const run = await running(journal);
      const failing = transact(run, "a", async (tx) => {
        await writeWithin(tx, wrong as never);
        return record("a");
      });
      await expect(failing).rejects.toThrow("an item has one of Put, Update, Delete");
    },
  );

  test("refuses calls after its body has returned, and awaits those before", async () => {
    const [run, sku] = [await running(journal), await stocked(9)];
    const change = { sku, quantity: 1 };
    let kept: Opened | undefined;
    await transact(run, "a", async (tx) => {
      kept = tx;
      void inventory.within(tx).decrement({ ...change, operationId: `${sku}/1` });
      return record("a");
    });
    expect(await inventory.get(sku)).toMatchObject({ onHand: 8 });
    const late = inventory.within(kept as Opened).decrement({
      ...change,
      operationId: `${sku}/2`,
    });
    await expect(late).rejects.toMatchObject({ code: "STORE_REFUSED" });
    expect(() => inventory.within({ batch: async () => [] })).toThrow(TypeError);
  });
});

describe("lost answers", () => {
  test.each([[1], [2]])(
    "a transaction whose answer to request %i is lost is executed once",
    async (lost) => {
      let count = 0;
      const { journal: ours, dynamodb: client } = faulty((_, pass) => {
        count += 1;
        return count === lost ? loseAnswer(pass) : undefined;
      });
      await using _ = client;
      const [run, sku] = [await running(journal), await stocked(9)];
      const sold = await transact(run, "sell", selling(sku, run.runId), { on: ours });
      expect(sold).toMatchObject({ value: "7" });
      expect(await recordsOf(run)).toEqual(["sell"]);
      expect(await inventory.get(sku)).toMatchObject({ onHand: 7, sold: 2 });
    },
  );

  test("a transaction that arrives after its refused repetition is refused, too", async () => {
    const [run, sku] = [await running(journal), await stocked(9)];
    const item = `${run.runId}/item`;
    let [count, late] = [0, Promise.resolve<unknown>(undefined)];
    const { promise: mayArrive, resolve: arrive } = Promise.withResolvers<void>();
    const { journal: ours, dynamodb: client } = faulty((_, pass) => {
      count += 1;
      if (count !== 2) return undefined;
      late = mayArrive.then(pass);
      return Promise.reject(new Error("the answer is lost"));
    });
    await using _ = client;
    const failing = transact(
      run,
      "sell",
      async (tx) => {
        const sold = await selling(sku, run.runId)(tx);
        const condition = { ConditionExpression: "attribute_exists(pk)" };
        await writeWithin(tx, own(item, condition));
        return sold;
      },
      { on: ours },
    );
    await expect(failing).rejects.toMatchObject({ code: "TRANSACTION_REFUSED" });
    // What was sent first would succeed now.
    await transact(await running(journal), "make", async (tx) => {
      await writeWithin(tx, own(item));
      return record("make");
    });
    arrive();
    await late;
    expect(await inventory.get(sku)).toMatchObject({ onHand: 9 });
    expect(await recordsOf(run)).toEqual([]);
  });

  test("a second call tells whether a transaction that was aborted was committed", async () => {
    const refuse = () => Promise.reject(new Error("not committed"));
    for (const isCommitted of [true, false]) {
      const [run, sku] = [await running(journal), await stocked(9)];
      const giveUp = new AbortController();
      let [count, late] = [0, Promise.resolve<unknown>(undefined)];
      const { promise: mayArrive, resolve: arrive } = Promise.withResolvers<void>();
      const { journal: ours, dynamodb: client } = faulty((_, pass) => {
        count += 1;
        if (count !== 2) return undefined;
        late = isCommitted ? pass() : mayArrive.then(pass);
        late.then(() => giveUp.abort());
        if (!isCommitted) giveUp.abort();
        return new Promise((__, reject) => {
          giveUp.signal.addEventListener("abort", () => reject(new Error("aborted")));
          if (giveUp.signal.aborted) reject(new Error("aborted"));
        });
      });
      await using _ = client;
      const calling = { on: ours, signal: giveUp.signal };
      await expect(transact(run, "sell", selling(sku, run.runId), calling)).rejects.toMatchObject({
        code: "UNKNOWN_OUTCOME",
      });
      const second = await transact(run, "sell", refuse).catch((error: Error) => error.message);
      arrive();
      await late;
      const { onHand } = (await inventory.get(sku)) ?? {};
      const answer = typeof second === "string" ? second : second.value;
      expect([answer, onHand]).toEqual(isCommitted ? ["7", 7] : ["not committed", 9]);
    }
  });
});

test("a committed step is known although its record is seen later than its key", async () => {
  const [run, sku] = [await running(journal), await stocked(9)];
  await transact(run, "sell", selling(sku, run.runId));
  let hidden = 0;
  const { dynamodb: client } = watch(table, (operation, pass, body) => {
    if (operation !== "GetItem" && operation !== "BatchGetItem") return undefined;
    if (!body.includes("/record/") || hidden > 0) return undefined;
    hidden += 1;
    return pass().then((answer) => ({
      ...{ status: 200, headers: answer.headers, body: null },
      text: async () => "{}",
    }));
  });
  await using _ = client;
  const refuse = () => Promise.reject(new Error("not committed"));
  const again = await transact(run, "sell", refuse, { on: dynamodbJournal(client) });
  expect([again.value, hidden]).toEqual(["7", 1]);
});

test("a workflow sells in step.tx and puts the units back when it fails", async () => {
  const sku = await stocked(9);
  const order = workflow({ name: "order", version: 1, input: z.boolean() }, async (ctx, fails) => {
    const left = await ctx.step.tx(
      "sell",
      { lock: stockLock(sku) },
      async ({ tx, fence, idempotencyKey }) => {
        const change = { sku, quantity: 2, operationId: idempotencyKey, fence };
        return (await inventory.within(tx).decrement(change)).remaining;
      },
      async (_, { tx, fence, idempotencyKey }) => {
        const change = { sku, quantity: 2, operationId: idempotencyKey, fence };
        await inventory.within(tx).restock(change);
      },
    );
    await ctx.step("charge", async () => {
      if (fails) throw new TerminalError("CARD_REFUSED", "the card", { effect: "none" });
    });
    return left;
  });
  const points: string[] = [];
  const watched = injectFaults(journal, (point) => void points.push(point));
  const runtime = createRuntime({ journal: watched, locks, workflows: [order] });
  const first = await runtime.execute(order, false, { id: newRunId() });
  expect(first).toMatchObject({ status: "completed", output: 7 });
  const second = await runtime.execute(order, true, { id: newRunId() });
  expect(second).toMatchObject({ status: "failed", compensated: "yes" });
  expect(await inventory.get(sku)).toMatchObject({ onHand: 7, sold: 4, supplied: 11 });
  expect((await inventory.history(sku)).map(({ kind }) => kind)).toEqual([
    "restock",
    "decrement",
    "decrement",
    "set",
  ]);
  expect(points).toContain("transact:after");
});
