import { describe } from "vitest";
import { describeStepTransactions } from "../conformance/steps/transactions.ts";
import { describeSteps } from "../conformance/steps.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { objectsUnderTest } from "../support/workerd-under-test.ts";

// The statements are SQLite's, which the default run tests.
describe.runIf(EVERY_VERSION)("in a Durable Object", () => {
  const objects = objectsUnderTest();

  describeSteps("durable-objects", objects.steps);
  describeStepTransactions("durable-objects", objects.steps);
});
