import { inject } from "vitest";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { describeElections, describeLostProclamations } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { describeSqlClaims } from "../conformance/sql-claims.ts";
import { sqlServerUnderTest, temporaryDatabase } from "../support/under-test.ts";

for (const server of inject("sqlServers")) {
  describeLockStore(server.name, () => sqlServerUnderTest(server));
  describeElections(server.name, () => sqlServerUnderTest(server));
  describeLostProclamations(server.name, () => sqlServerUnderTest(server));

  describeSqlClaims(server.name, async () => {
    const { open, drop } = await temporaryDatabase(server);
    const database = open();
    await migrate(database);
    const close = async () => {
      await database.close();
      await drop();
    };
    return { database, close };
  });
}
