import { inject } from "vitest";
import { describeEntities } from "../conformance/entities.ts";
import { describeSqlEntities } from "../conformance/stored-entities.ts";
import { sqlServerJournal } from "../support/journal-under-test.ts";

for (const server of inject("sqlServers")) {
  describeEntities(server.name, () => sqlServerJournal(server));
  describeSqlEntities(server.name, () => sqlServerJournal(server));
}
