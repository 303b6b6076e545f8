import { expect, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { describeInventory } from "../conformance/inventory.ts";
import { describeInventoryWithin } from "../conformance/inventory-within.ts";
import { sqliteInventory } from "../support/inventory-under-test.ts";
import { sqliteJournalUnderTest } from "../support/journal-under-test.ts";
import { sqlStockWithin } from "../support/stock-within.ts";
import { temporaryFile } from "../support/under-test.ts";

describeInventory("sqlite", sqliteInventory);
describeInventoryWithin("sqlite", () => sqlStockWithin(sqliteJournalUnderTest));

test.each(["is gone", "is an earlier one"])(
  "a holder whose claim %s after a failover raises it again, and its reservation is confirmed",
  async (state) => {
    const { file, remove } = await temporaryFile();
    await using shop = await openSqlite(file);
    const { inventory, locks, database } = shop;
    await inventory.set({ sku: "cup", quantity: 5, operationId: "set" });
    await (await locks.lock("sku/cup", { ttl: 60_000, wait: 1_000 })).unlock();
    await using lock = await locks.lock("sku/cup", { ttl: 60_000, wait: 1_000 });
    const { fence } = lock;
    const reservation = { sku: "cup", quantity: 1, operationId: "hold", expiresIn: 60_000 };
    await inventory.reserve({ ...reservation, fence });
    const lose =
      state === "is gone"
        ? sql`DELETE FROM lockstep_claim`
        : sql`UPDATE lockstep_claim SET token = token - 1`;
    await database.batch([lose]);
    const confirm = { sku: "cup", reservation: "hold", operationId: "paid", fence };
    expect(await inventory.confirm(confirm)).toMatchObject({ outcome: "applied" });
    await remove();
  },
);

test("an earlier failure of the transaction is no conflict of an operation id", async () => {
  const { file, remove } = await temporaryFile();
  await using shop = await openSqlite(file);
  const { inventory, database } = shop;
  await inventory.set({ sku: "cup", quantity: 5, operationId: "set" });
  const purchase = sql`INSERT INTO purchase VALUES ('order')`;
  await database.batch([sql`CREATE TABLE purchase (id TEXT PRIMARY KEY)`, purchase]);
  const sale = { sku: "cup", quantity: 1, operationId: "new" };
  const selling = database.transaction(async (tx) => {
    await tx.batch([purchase]).catch(() => {});
    return inventory.within(tx).decrement(sale);
  });
  await expect(selling).rejects.toMatchObject({ name: "DuplicateKeyError" });
  await remove();
});
