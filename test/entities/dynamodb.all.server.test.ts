import { expect, test } from "vitest";
import * as z from "zod";
import { sql } from "../../core/database/sql.ts";
import { entity } from "../../core/steps/entity/entity.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { dynamodbJournal } from "../../core/stores/dynamodb/journal/index.ts";
import { describeEntities, newKey } from "../conformance/entities.ts";
import { describeStoredEntities } from "../conformance/stored-entities.ts";
import { account, hooks } from "../support/account.ts";
import { anyTable, loseAnswer, type TestTable, watch } from "../support/dynamodb-under-test.ts";
import { dynamodbJournalUnderTest } from "../support/journal-under-test.ts";

describeEntities("dynamodb", dynamodbJournalUnderTest);

describeStoredEntities("dynamodb", async () => {
  const table = await anyTable();
  const dynamodb = table.open();
  return {
    url: table.url,
    journal: dynamodbJournal(dynamodb),
    book: bookingIn(table),
    isBooked: async (name) => (await dynamodb.get(bookingKey(name))) !== undefined,
    foreign: {
      write: sql`INSERT INTO booking (name) VALUES ('a')`,
      problem: "an item has one of Put, Update, Delete, ConditionCheck",
    },
    openLossy() {
      let count = 0;
      const lossy = watch(table, (operation, pass) => {
        if (operation !== "TransactWriteItems") return undefined;
        count += 1;
        return count % 2 === 1 ? loseAnswer(pass) : undefined;
      });
      return { journal: dynamodbJournal(lossy.dynamodb), count: () => count };
    },
    close: () => dynamodb.close(),
  };
});

function bookingKey(name: string) {
  return { pk: `booking/${name}`, sk: "booking" };
}

/** Returns a function that makes the write of a booking. */
function bookingIn({ name: TableName }: TestTable) {
  return (name: string) => {
    const { pk, sk } = bookingKey(name);
    const Item = { pk: { S: pk }, sk: { S: sk } };
    return { Put: { TableName, Item, ConditionExpression: "attribute_not_exists(pk)" } };
  };
}

test("a commit that arrives after its repetition was refused is the answer, and not only in the state", async () => {
  const table = await anyTable();
  await using admin = table.open();
  hooks.book = bookingIn(table);
  await admin.write([
    { key: bookingKey("seat"), update: "SET #by = :by", values: { by: "other" } },
  ]);
  let late: (() => Promise<unknown>) | undefined;
  let refusals = 0;
  const { dynamodb } = watch(table, (operation, pass, body) => {
    if (operation !== "TransactWriteItems" && operation !== "UpdateItem") return undefined;
    if (body.includes("booking/seat")) {
      if (late) {
        refusals += 1;
        return undefined;
      }
      late = pass;
      return Promise.reject(new Error("the connection ended"));
    }
    if (refusals === 0) return undefined;
    refusals = 0;
    return (async () => {
      await admin.write([{ key: bookingKey("seat") }]);
      await late?.();
      return await pass();
    })();
  });
  const mine = createRuntime({ journal: dynamodbJournal(dynamodb) }).entity(account, newKey());
  expect(await mine.call("book", "seat", { operationId: "1" })).toBe("booked");
  expect(await mine.state()).toMatchObject({ balance: 1 });
  await dynamodb.close();
});

test("a search for waiting keys reads no more of the index than it is asked for, and those that others handle", async () => {
  const table = await anyTable();
  let most = 0;
  const { dynamodb } = watch(table, (operation, _, body) => {
    if (operation === "Query" && body.includes("inboxes/")) most += JSON.parse(body).Limit;
    return undefined;
  });
  const shelf = entity({ name: newKey(), state: z.number(), initial: 0 }, (on) => ({
    add: on(z.number(), async ({ state }, n) => ({ state: state + n })),
  }));
  const { entities } = dynamodbJournal(dynamodb);
  const runtime = createRuntime({ journal: dynamodbJournal(dynamodb) });
  const tell = (i: number) => runtime.entity(shelf, `${i}`).tell("add", 1, { operationId: "1" });
  await Promise.all(Array.from({ length: 200 }, (_, i) => tell(i)));
  const first = await entities.waiting([shelf.name], 4);
  expect(first).toHaveLength(4);
  expect(most).toBeLessThan(200);
  for (const id of first) await entities.visit(id, { ttl: 60_000 });
  const next = await entities.waiting([shelf.name], 4);
  expect(next).toHaveLength(4);
  expect(next).not.toContainEqual(first[0]);
  expect(await entities.waiting([shelf.name], 500)).toHaveLength(196);
  await dynamodb.close();
});

test("a handler has at most 25 writes, also when it is the last of 24 that are committed together", async () => {
  const table = await anyTable();
  await using dynamodb = table.open();
  const book = bookingIn(table);
  const booker = entity({ name: "booker", state: z.number(), initial: 0 }, (on) => ({
    count: on(z.null(), async ({ state }) => ({ state: state + 1 })),
    book: on(z.array(z.string()), async ({ state }, names) => ({
      state: state + names.length,
      writes: names.map(book),
    })),
  }));
  const seats = (row: string, count: number) => Array.from({ length: count }, (_, i) => row + i);
  const mine = createRuntime({ journal: dynamodbJournal(dynamodb) }).entity(booker, newKey());
  for (let i = 0; i < 23; i += 1) await mine.tell("count", null, { operationId: String(i) });
  await mine.call("book", seats("a", 25), { operationId: "25 seats" });
  expect(await mine.state()).toBe(48);
  const tooMany = mine.call("book", seats("b", 26), { operationId: "26 seats" });
  await expect(tooMany).rejects.toThrow("at most 25 `writes`, not 26");
  expect(await mine.state()).toBe(48);
});
