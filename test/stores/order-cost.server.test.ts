import { expect, test } from "vitest";
import { z } from "zod";
import { stockLock } from "../../core/inventory/inventory.ts";
import type { Journal } from "../../core/journal/journal.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { dynamodbInventory } from "../../core/stores/dynamodb/inventory/index.ts";
import { dynamodbJournal } from "../../core/stores/dynamodb/journal/index.ts";
import { dynamodbLocks } from "../../core/stores/dynamodb/locks/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqlStore } from "../../core/stores/sql/store.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";
import { pageAt } from "../support/docs.ts";
import { anyTable, watch } from "../support/dynamodb-under-test.ts";

interface Shop {
  readonly inventory: TransactionalInventory;
  readonly journal: Journal;
  readonly locks: LockStore;
}

/** Executes an order that sells under the lock of its article, and charges with an undo. Another order has warmed the caches up. */
async function order({ inventory, journal, locks }: Shop, begin: () => void): Promise<void> {
  await inventory.set({ sku: "cup", quantity: 9, operationId: "count-1" });
  const input = z.object({ id: z.string() });
  const placeOrder = workflow(
    { name: "order", version: 1, input, id: ({ id }) => id },
    async (ctx) => {
      await ctx.step.tx(
        "sell",
        { lock: stockLock("cup") },
        async ({ tx, fence, idempotencyKey: operationId }) => {
          const sale = { sku: "cup", quantity: 1, operationId, fence };
          return (await inventory.within(tx).decrement(sale)).outcome;
        },
      );
      await ctx.step(
        "charge",
        async () => "paid",
        async () => {},
      );
    },
  );
  const runtime = createRuntime({ journal, locks });
  await runtime.run(placeOrder, { id: "order-1" });
  begin();
  const { status } = await runtime.run(placeOrder, { id: "order-2" });
  expect(status).toBe("completed");
}

/** The numbers that the page about operations tells of an order on a store. */
function costOn(store: string): readonly number[] {
  const page = pageAt("docs/operations.md");
  const [, cells = ""] = new RegExp(`^\\| an order on ${store} \\|(.*)$`, "m").exec(page) ?? [];
  return [...cells.matchAll(/\d+/g)].map(([number]) => Number(number));
}

test("an order takes as many calls and commits of SQLite as the docs say", async () => {
  let calls: string[] = [];
  const database = sqliteDatabase(":memory:");
  await migrate(database);
  const counted = injectFaults(database, (point) => {
    if (point.endsWith(":before")) calls.push(point.replace(":before", ""));
  });
  await using shop = sqlStore(counted, {});
  await order(shop, () => {
    calls = [];
  });
  const commits = calls.filter((call) => call === "batch" || call === "tx.commit");
  expect([calls.length, commits.length]).toEqual(costOn("SQLite"));
});

test("an order takes as many requests and write units of DynamoDB as the docs say", async () => {
  let units = 0;
  const { dynamodb, requests } = watch(await anyTable(), (operation, _, body) => {
    const { TransactItems = [] } = JSON.parse(body);
    units += operation === "TransactWriteItems" ? 2 * TransactItems.length : 0;
    units += /^(?:Update|Put|Delete)Item$/.test(operation) ? 1 : 0;
    return undefined;
  });
  await using _ = dynamodb;
  const locks = dynamodbLocks(dynamodb);
  const shop = {
    inventory: dynamodbInventory(dynamodb),
    journal: dynamodbJournal(dynamodb),
    locks,
  };
  await order(shop, () => {
    units = 0;
    requests.length = 0;
  });
  await locks.close();
  expect([requests.length, units]).toEqual(costOn("DynamoDB"));
});
