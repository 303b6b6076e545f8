import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { describeElections, describeLostProclamations } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { describeSqlClaims } from "../conformance/sql-claims.ts";
import { sqliteUnderTest } from "../support/under-test.ts";

describeLockStore("sqlite", sqliteUnderTest);
describeElections("sqlite", sqliteUnderTest);
describeLostProclamations("sqlite", sqliteUnderTest);

describeSqlClaims("sqlite", async () => {
  const database = sqliteDatabase(":memory:");
  await migrate(database);
  return { database, close: () => database.close() };
});
