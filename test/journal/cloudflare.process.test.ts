import { describe } from "vitest";
import { describeJournal } from "../conformance/journal.ts";
import { describeTransactions } from "../conformance/transactions.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { objectsUnderTest } from "../support/workerd-under-test.ts";

// The statements are SQLite's, which the default run tests.
describe.runIf(EVERY_VERSION)("in a Durable Object", () => {
  const objects = objectsUnderTest();

  describeJournal("durable-objects", objects.journal);
  describeTransactions("durable-objects", objects.journal);
});
