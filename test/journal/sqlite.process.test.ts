import { describeJournal } from "../conformance/journal.ts";
import { describeTransactions } from "../conformance/transactions.ts";
import { sqliteJournalUnderTest } from "../support/journal-under-test.ts";

describeJournal("sqlite", sqliteJournalUnderTest);
describeTransactions("sqlite", sqliteJournalUnderTest);
