import { describeJournal } from "../conformance/journal.ts";
import { dynamodbJournalUnderTest } from "../support/journal-under-test.ts";

describeJournal("dynamodb", dynamodbJournalUnderTest);
