import { inject } from "vitest";
import { describeJournal } from "../conformance/journal.ts";
import { describeTransactions } from "../conformance/transactions.ts";
import { sqlServerJournal } from "../support/journal-under-test.ts";

for (const server of inject("postgresServers")) {
  describeJournal(server.name, () => sqlServerJournal(server));
  describeTransactions(server.name, () => sqlServerJournal(server));
}
