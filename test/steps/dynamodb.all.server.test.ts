import { describeSteps } from "../conformance/steps.ts";
import { dynamodbJournalUnderTest } from "../support/journal-under-test.ts";

describeSteps("dynamodb", dynamodbJournalUnderTest);
