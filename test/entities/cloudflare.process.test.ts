import { describe } from "vitest";
import { describeEntities } from "../conformance/entities.ts";
import { describeSqlEntities } from "../conformance/stored-entities.ts";
import { WHOLE_MATRIX } from "../support/matrix.ts";
import { objectsUnderTest } from "../support/workerd-under-test.ts";

// The statements are SQLite's, which the default run tests.
describe.runIf(WHOLE_MATRIX)("in a Durable Object", () => {
  const objects = objectsUnderTest();

  describeEntities("durable-objects", objects.journal);
  describeSqlEntities("durable-objects", objects.journal);
});
