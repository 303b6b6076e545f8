import { expect, test } from "vitest";
import { type Inventory, stockLock } from "../../../core/inventory/inventory.ts";
import { type Fence, issueFence } from "../../../core/lock/fence.ts";
import { dynamodbInventory } from "../../../core/stores/dynamodb/inventory/index.ts";
import { stockKey } from "../../../core/stores/dynamodb/inventory/items.ts";
import type { Fetch } from "../../../core/stores/fetch.ts";
import { nodeFetch } from "../../../core/stores/node-fetch.ts";
import {
  anyTable,
  type RequestFault,
  type TestTable,
  watch,
} from "../../support/dynamodb-under-test.ts";
import { sellWithoutPause } from "../../support/sell-without-pause.ts";
import { pause, until } from "../../support/until.ts";

const sku = "teapot";

/** Opens stock with the operations of its requests, and a fault between it and the server. */
function watched(table: TestTable) {
  const faults: RequestFault[] = [];
  const { dynamodb, requests } = watch(table, (...request) => faults[0]?.(...request));
  const take = () => requests.splice(0);
  return { stock: dynamodbInventory(dynamodb), dynamodb, faults, take };
}

const ordersOf = (size: number, start = "") =>
  Array.from({ length: size }, (_, i) => ({ operationId: `${start}${i}`, quantity: 1 }));

test("a change is one request while no other client changes the sku", async () => {
  const { stock, dynamodb, take } = watched(await anyTable());
  await using _ = dynamodb;
  const costs = async (call: () => Promise<unknown>) => {
    take();
    await call();
    return take();
  };
  await stock.set({ sku, quantity: 5_000, operationId: "set" });
  const fence = issueFence(stockLock(sku), 0, 7n, "holder");
  const one = ["TransactWriteItems"];
  expect(await costs(() => stock.decrement({ sku, quantity: 1, operationId: "1" }))).toEqual(one);
  expect(await costs(() => stock.restock({ sku, quantity: 1, operationId: "2", fence }))).toEqual(
    one,
  );
  expect(await costs(() => stock.decrementMany({ sku, orders: ordersOf(96, "batch/") }))).toEqual(
    one,
  );
  expect(await costs(() => stock.claim(fence))).toEqual(["UpdateItem"]);
  const reserving = { sku, quantity: 1, operationId: "r", expiresIn: 60_000 };
  expect(await costs(() => stock.reserve(reserving))).toEqual(["BatchGetItem", ...one]);
  const closing = { sku, reservation: "r", operationId: "c" };
  const reads = ["BatchGetItem", "GetItem"];
  expect(await costs(() => stock.confirm(closing))).toEqual([...reads, ...one]);
});

test("a sale whose answer was lost is done once, and its second request finds the result", async () => {
  const { stock, dynamodb, faults, take } = watched(await anyTable());
  await using _ = dynamodb;
  await stock.set({ sku, quantity: 5, operationId: "set" });
  take();
  faults.push((_, pass) => {
    faults.splice(0);
    return pass().then(() => Promise.reject(new Error("reset")));
  });
  const change = { sku, quantity: 2, operationId: "order" };
  expect(await stock.decrement(change)).toEqual({
    outcome: "applied",
    remaining: 3,
    replayed: true,
  });
  expect(take()).toEqual(["TransactWriteItems", "TransactWriteItems"]);
  expect(await stock.get(sku)).toMatchObject({ onHand: 3, sold: 2 });
});

test("a sale that arrives after its repetition changes nothing", async () => {
  const { stock, dynamodb, faults } = watched(await anyTable());
  await using _ = dynamodb;
  await stock.set({ sku, quantity: 5, operationId: "set" });
  let deliver: (() => ReturnType<Fetch>) | undefined;
  faults.push((_, pass) => {
    faults.splice(0);
    deliver = pass;
    return Promise.reject(new Error("reset"));
  });
  expect(await stock.decrement({ sku, quantity: 2, operationId: "order" })).toMatchObject({
    remaining: 3,
    replayed: false,
  });
  const late = await deliver?.();
  expect(await late?.text()).toContain("ConditionalCheckFailed");
  expect(await stock.get(sku)).toMatchObject({ onHand: 3, sold: 2 });
  expect(await stock.history(sku)).toHaveLength(2);
});

/** Opens stock whose requests take `span` longer. */
function slow(table: TestTable, span: number) {
  const { dynamodb } = watch(table, (_, pass) => pause(span).then(pass));
  return { stock: dynamodbInventory(dynamodb), dynamodb };
}

test.each([5, 40])(
  "a client whose requests take %i ms has its turns beside one that sells without a pause",
  async (span) => {
    const table = await anyTable();
    const [busy, other] = [slow(table, 5), slow(table, span)];
    await using _busy = busy.dynamodb;
    await using _other = other.dynamodb;
    const change = (operationId: string) => ({ sku, quantity: 1, operationId });
    await busy.stock.set({ ...change("set"), quantity: 100_000 });
    await other.stock.reserve({ ...change("expired"), expiresIn: 1 });
    await until(async () => (await other.stock.reservations(sku))[0]?.expiresIn === 0);
    {
      await using _ = sellWithoutPause(busy.stock, sku);
      const { stock } = other;
      const reserving = { ...change("reserve"), expiresIn: 600_000 };
      const closing = { ...change("confirm"), reservation: "reserve" };
      expect(await stock.decrement(change("decrement"))).toMatchObject({ outcome: "applied" });
      expect(await stock.reserve(reserving)).toMatchObject({ outcome: "applied" });
      expect(await stock.confirm(closing)).toMatchObject({ outcome: "applied" });
      await stock.expire(sku);
    }
    expect(await other.stock.get(sku)).toMatchObject({ reserved: 0 });
    const seqs = (await other.stock.history(sku, { limit: 10_000 })).map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.map((_, i) => seqs.length - i));
  },
);

/** Makes the first `times` transactions come too late, and calls `meanwhile` before their client asks for a turn. */
function beaten(stock: Inventory, times: number, meanwhile: () => Promise<unknown>): RequestFault {
  let transactions = 0;
  return async (operation, pass) => {
    if (operation === "TransactWriteItems") transactions += 1;
    if (operation === "TransactWriteItems" && transactions <= times) {
      await stock.restock({ sku, quantity: 1, operationId: `restock ${transactions}` });
    }
    if (operation === "UpdateItem") await meanwhile();
    return pass();
  };
}

test("a client that asks for a turn makes no stock of a sku that somebody has deleted", async () => {
  const table = await anyTable();
  const { stock, dynamodb, faults, take } = watched(table);
  await using _ = dynamodb;
  await using other = table.open();
  const others = dynamodbInventory(other);
  await stock.set({ sku, quantity: 5, operationId: "set" });
  faults.push(beaten(others, 2, () => other.write([{ key: stockKey(sku) }])));
  const sale = stock.decrement({ sku, quantity: 1, operationId: "sale" });
  await expect(sale).rejects.toMatchObject({ code: "UNKNOWN_SKU" });
  expect(take()).toContain("UpdateItem");
  expect(await others.get(sku)).toBeUndefined();
});

test("a reservation that another client closes while its own asks for a turn is closed once", async () => {
  const table = await anyTable();
  const { stock, dynamodb, faults } = watched(table);
  await using _ = dynamodb;
  await using other = table.open();
  const others = dynamodbInventory(other);
  await stock.set({ sku, quantity: 5, operationId: "set" });
  await stock.reserve({ sku, quantity: 2, operationId: "r", expiresIn: 600_000 });
  const closing = { sku, reservation: "r" };
  faults.push(beaten(others, 2, () => others.cancel({ ...closing, operationId: "cancel" })));
  expect(await stock.confirm({ ...closing, operationId: "confirm" })).toMatchObject({
    outcome: "closed",
    remaining: 7,
  });
  expect(await stock.get(sku)).toMatchObject({ onHand: 7, reserved: 0, sold: 0 });
});

test("an expired reservation that another client releases meanwhile goes back on hand once", async () => {
  const table = await anyTable();
  const { stock, dynamodb, faults, take } = watched(table);
  await using _ = dynamodb;
  await using other = table.open();
  const others = dynamodbInventory(other);
  await stock.set({ sku, quantity: 5, operationId: "set" });
  await stock.reserve({ sku, quantity: 2, operationId: "r", expiresIn: 1 });
  await until(async () => (await stock.reservations(sku))[0]?.expiresIn === 0);
  faults.push(beaten(others, 1, () => others.expire(sku)));
  await stock.expire(sku);
  expect(take()).toContain("UpdateItem");
  expect(await stock.get(sku)).toMatchObject({ onHand: 6, reserved: 0 });
});

test("concurrent reservations share transactions of 48, and each keeps its units", async () => {
  const { stock, dynamodb, take } = watched(await anyTable());
  await using _ = dynamodb;
  await stock.set({ sku, quantity: 90, operationId: "set" });
  take();
  const reserve = (operationId: string) =>
    stock.reserve({ sku, quantity: 1, operationId, expiresIn: 600_000 });
  const answers = await Promise.all(ordersOf(97).map(({ operationId }) => reserve(operationId)));
  expect(take().filter((operation) => operation === "TransactWriteItems")).toHaveLength(3);
  expect(answers.filter(({ outcome }) => outcome === "applied")).toHaveLength(90);
  expect(await stock.reservations(sku)).toHaveLength(90);
  expect(await reserve("0")).toEqual({ ...answers[0], replayed: true });
  const closing = { sku, reservation: "1", operationId: "confirm" };
  expect(await stock.confirm(closing)).toMatchObject({ outcome: "applied" });
  expect(await stock.get(sku)).toMatchObject({ onHand: 0, reserved: 89, sold: 1 });
});

async function claim(table: TestTable, fence: Fence): Promise<void> {
  await using other = table.open();
  await dynamodbInventory(other).claim(fence);
}

/** Stock of 500 units, and a batch of two transactions: before the `late`-th request, another client raises the claim. */
async function overtakenBatch(late: number, isFirstAnswerLost: boolean) {
  const table = await anyTable();
  const { stock, dynamodb, faults } = watched(table);
  await stock.set({ sku, quantity: 500, operationId: "set" });
  const next = issueFence(stockLock(sku), 0, 8n, "next");
  let transactions = 0;
  faults.push((operation, pass) => {
    if (operation === "TransactWriteItems") transactions += 1;
    if (transactions === 1 && isFirstAnswerLost) {
      return pass().then(() => Promise.reject(new Error("the answer is lost")));
    }
    if (transactions !== late) return undefined;
    return claim(table, next).then(pass);
  });
  const fence = issueFence(stockLock(sku), 0, 7n, "holder");
  return { stock, dynamodb, faults, next, batch: { sku, orders: ordersOf(150), fence } };
}

const UNKNOWN = { code: "UNKNOWN_OUTCOME", cause: { code: "FENCED_OUT" } };

test("a batch of several transactions that is fenced out half way is unknown, and a second call tells", async () => {
  const { stock, dynamodb, faults, next, batch } = await overtakenBatch(2, false);
  await using _ = dynamodb;
  await expect(stock.decrementMany(batch)).rejects.toMatchObject(UNKNOWN);
  faults.splice(0);
  expect(await stock.get(sku)).toMatchObject({ sold: 96 });
  await expect(stock.decrementMany(batch)).rejects.toMatchObject({ code: "FENCED_OUT" });
  const answers = await stock.decrementMany({ ...batch, fence: next });
  expect(answers.filter(({ replayed }) => replayed)).toHaveLength(96);
  expect(await stock.get(sku)).toMatchObject({ onHand: 350, sold: 150 });
});

test("single sales of a holder that is overtaken are done or fenced out, and none is unknown", async () => {
  const { stock, dynamodb, batch } = await overtakenBatch(3, false);
  await using _ = dynamodb;
  const { fence } = batch;
  const sales = ordersOf(200).map((order) => stock.decrement({ sku, ...order, fence }));
  const done = (await Promise.allSettled(sales)).map((sale) =>
    sale.status === "fulfilled" ? sale.value.outcome : sale.reason.code,
  );
  expect(done).toEqual([...Array(97).fill("applied"), ...Array(103).fill("FENCED_OUT")]);
  expect(await stock.get(sku)).toMatchObject({ sold: 97 });
});

test("a batch whose first transaction lost its answer is unknown when the second is refused", async () => {
  const { stock, dynamodb, batch } = await overtakenBatch(3, true);
  await using _ = dynamodb;
  await expect(stock.decrementMany(batch)).rejects.toMatchObject(UNKNOWN);
  expect(await stock.get(sku)).toMatchObject({ sold: 96 });
});

test("a sku that somebody has deleted is unknown, and comes back with its new units alone", async () => {
  const table = await anyTable();
  await using dynamodb = table.open();
  await using other = table.open();
  const [stock, others] = [dynamodbInventory(dynamodb), dynamodbInventory(other)];
  const clear = () => other.write([{ key: stockKey(sku), when: "attribute_exists(#pk)" }]);
  await stock.set({ sku, quantity: 100, operationId: "set 1" });
  await clear();
  const sale = { sku, quantity: 1, operationId: "sale 1" };
  await expect(stock.decrement(sale)).rejects.toMatchObject({ code: "UNKNOWN_SKU" });
  await stock.set({ sku, quantity: 100, operationId: "set 2" });
  await clear();
  await others.set({ sku, quantity: 3, operationId: "set 3" });
  expect(await stock.decrement({ ...sale, operationId: "sale 2" })).toMatchObject({ remaining: 2 });
  expect(await others.get(sku)).toMatchObject({ onHand: 2, sold: 1 });
});

test("a stale cache never answers: changes of other clients are visible at once", async () => {
  const table = await anyTable();
  const [here, there] = [watched(table), watched(table)];
  await using _here = here.dynamodb;
  await using _there = there.dynamodb;
  const change = (operationId: string, quantity: number) => ({ sku, quantity, operationId });
  await here.stock.set(change("1", 5));
  await there.stock.decrement(change("2", 5));
  expect(await here.stock.decrement(change("3", 1))).toMatchObject({ outcome: "sold-out" });
  await there.stock.restock(change("4", 9));
  expect(await here.stock.decrement(change("5", 9))).toMatchObject({ outcome: "applied" });
  expect(await there.stock.decrement(change("5", 9))).toMatchObject({ replayed: true });
  await expect(there.stock.restock(change("5", 9))).rejects.toMatchObject({
    code: "OPERATION_CONFLICT",
  });
});

test("more expired reservations than a transaction has items are all put back", async () => {
  const { stock, dynamodb } = watched(await anyTable());
  await using _ = dynamodb;
  await stock.set({ sku, quantity: 120, operationId: "set" });
  for (const { operationId, quantity } of ordersOf(100)) {
    await stock.reserve({ sku, quantity, operationId, expiresIn: 1 });
  }
  expect(await stock.reservations(sku)).toHaveLength(100);
  await until(async () =>
    (await stock.reservations(sku)).every(({ expiresIn }) => expiresIn === 0),
  );
  expect(await stock.decrement({ sku, quantity: 120, operationId: "all" })).toMatchObject({
    outcome: "applied",
    remaining: 0,
  });
  expect(await stock.get(sku)).toMatchObject({ reserved: 0, sold: 120 });
});

test("a reservation is refused where answers do not tell the server's clock", async () => {
  const table = await anyTable();
  const send = nodeFetch();
  const fetch: Fetch = async (url, request) => {
    const { headers, ...answer } = await send(url, request);
    return { ...answer, headers: { get: (name) => (name === "date" ? null : headers.get(name)) } };
  };
  await using dynamodb = table.open({ fetch });
  const stock = dynamodbInventory(dynamodb);
  const reserving = { sku, quantity: 1, operationId: "r", expiresIn: 60_000 };
  await expect(stock.reserve(reserving)).rejects.toMatchObject({
    code: "STORE_REFUSED",
    message: expect.stringContaining("Date"),
  });
});

test("a reservation does not expire early, although the server's clock tells whole seconds", async () => {
  const { stock, dynamodb } = watched(await anyTable());
  await using _ = dynamodb;
  await stock.set({ sku, quantity: 5, operationId: "set" });
  await stock.reserve({ sku, quantity: 1, operationId: "r", expiresIn: 2_500 });
  await pause(2_200);
  const closing = { sku, reservation: "r", operationId: "c" };
  expect(await stock.confirm(closing)).toMatchObject({ outcome: "applied" });
});
