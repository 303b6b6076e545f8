import { describeJournal } from "../conformance/journal.ts";
import { memoryJournalUnderTest } from "../support/journal-under-test.ts";

describeJournal("memory", memoryJournalUnderTest);
