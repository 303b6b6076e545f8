import { inject } from "vitest";
import { describeEntities } from "../conformance/entities.ts";
import { describeSqlEntities } from "../conformance/sql-entities.ts";
import { mysqlJournalUnderTest } from "../support/journal-under-test.ts";

for (const server of inject("sqlServers")) {
  describeEntities(server.name, () => mysqlJournalUnderTest(server));
  describeSqlEntities(server.name, () => mysqlJournalUnderTest(server));
}
