import { describeEntities } from "../conformance/entities.ts";
import { dynamodbJournalUnderTest } from "../support/journal-under-test.ts";

describeEntities("dynamodb", dynamodbJournalUnderTest);
