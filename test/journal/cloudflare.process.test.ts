import { describe } from "vitest";
import { describeJournal } from "../conformance/journal.ts";
import { describeTransactions } from "../conformance/transactions.ts";
import { WHOLE_MATRIX } from "../support/matrix.ts";
import { objectsUnderTest } from "../support/workerd-under-test.ts";

// The statements are SQLite's, which the default run tests.
describe.runIf(WHOLE_MATRIX)("in a Durable Object", () => {
  const objects = objectsUnderTest();

  describeJournal("durable-objects", objects.journal);
  describeTransactions("durable-objects", objects.journal);
});
