import { describe } from "vitest";
import { describeEntities } from "../conformance/entities.ts";
import { describeSqlEntities } from "../conformance/stored-entities.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { objectsUnderTest } from "../support/workerd-under-test.ts";

// The statements are SQLite's, which the default run tests.
describe.runIf(EVERY_VERSION)("in a Durable Object", () => {
  const objects = objectsUnderTest();

  describeEntities("durable-objects", objects.journal);
  describeSqlEntities("durable-objects", objects.journal);
});
