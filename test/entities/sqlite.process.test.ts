import { describeEntities } from "../conformance/entities.ts";
import { describeSqlEntities } from "../conformance/stored-entities.ts";
import { sqliteJournalUnderTest } from "../support/journal-under-test.ts";

describeEntities("sqlite", sqliteJournalUnderTest);
describeSqlEntities("sqlite", sqliteJournalUnderTest);
