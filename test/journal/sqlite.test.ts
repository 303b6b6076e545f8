import { describeJournal } from "../conformance/journal.ts";
import { sqliteJournalUnderTest } from "../support/journal-under-test.ts";

describeJournal("sqlite", sqliteJournalUnderTest);
