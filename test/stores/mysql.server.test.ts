import { inject } from "vitest";
import { mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { describeSqlClaims } from "../conformance/sql-claims.ts";
import { mysqlUnderTest, temporaryDatabase } from "../support/under-test.ts";

for (const server of inject("sqlServers")) {
  describeLockStore(server.name, () => mysqlUnderTest(server));

  describeSqlClaims(server.name, async () => {
    const { options, drop } = await temporaryDatabase(server);
    const database = mysqlDatabase(options);
    await migrate(database);
    const close = async () => {
      await database.close();
      await drop();
    };
    return { database, close };
  });
}
