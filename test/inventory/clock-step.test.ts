import { expect, test } from "vitest";
import { type Database, sql } from "../../core/database/sql.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { pause } from "../support/until.ts";

test("a reservation that a step of the database's clock opens again was made", async () => {
  const database = sqliteDatabase(":memory:");
  await migrate(database);
  let batches = 0;
  const batch: Database["batch"] = async (statements, signal) => {
    batches += 1;
    // The first batch of the confirmation has found it expired.
    if (batches === 2) {
      await database.batch([
        sql`UPDATE lockstep_reservation SET expires_at = expires_at + 60000000`,
      ]);
    }
    return database.batch(statements, signal);
  };
  const inventory = sqlInventory({
    dialect: database.dialect,
    address: database.address,
    batch,
    read: (statement, signal) => database.read(statement, signal),
  } as Database);
  await inventory.set({ sku: "a", quantity: 5, operationId: "set" });
  await inventory.reserve({ sku: "a", quantity: 2, operationId: "held", expiresIn: 1 });
  await pause(20);
  batches = 0;
  const paid = { sku: "a", reservation: "held", operationId: "paid" };
  expect(await inventory.confirm(paid)).toMatchObject({ outcome: "applied", replayed: false });
  expect(await inventory.get("a")).toMatchObject({ onHand: 3, reserved: 0, sold: 2 });
});
