import { sqlInventory } from "../../core/inventory/sql.ts";
import { mysqlStore, openMysql } from "../../core/stores/mysql/index.ts";
import { openSqlite, sqliteStore } from "../../core/stores/sqlite/index.ts";
import { migrate } from "../../infra/migrate.ts";
import type { InventoryUnderTest } from "../conformance/inventory.ts";
import type { SqlServer } from "./sql-servers.ts";
import { temporaryDatabase, temporaryFile } from "./under-test.ts";

export async function sqliteInventory(): Promise<InventoryUnderTest> {
  const { file, remove } = await temporaryFile();
  const admin = openSqlite(file);
  await migrate(admin);
  return {
    open() {
      const database = openSqlite(file);
      const locks = sqliteStore(database, { closeDatabase: true });
      return { inventory: sqlInventory(database), locks };
    },
    async close() {
      await admin.close();
      await remove();
    },
  };
}

export async function mysqlInventory(server: SqlServer): Promise<InventoryUnderTest> {
  const { options, drop } = await temporaryDatabase(server);
  const admin = openMysql(options);
  await migrate(admin);
  return {
    open() {
      const database = openMysql(options);
      const locks = mysqlStore(database, { closeDatabase: true });
      return { inventory: sqlInventory(database), locks };
    },
    async close() {
      await admin.close();
      await drop();
    },
  };
}
