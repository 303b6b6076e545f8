import { inject } from "vitest";
import { describeJournal } from "../conformance/journal.ts";
import { mysqlJournalUnderTest } from "../support/journal-under-test.ts";

for (const server of inject("sqlServers")) {
  describeJournal(server.name, () => mysqlJournalUnderTest(server));
}
