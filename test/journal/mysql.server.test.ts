import { inject } from "vitest";
import { describeJournal } from "../conformance/journal.ts";
import { describeTransactions } from "../conformance/transactions.ts";
import { mysqlJournalUnderTest } from "../support/journal-under-test.ts";

for (const server of inject("sqlServers")) {
  describeJournal(server.name, () => mysqlJournalUnderTest(server));
  describeTransactions(server.name, () => mysqlJournalUnderTest(server));
}
