import { expect, test } from "vitest";
import { dynamodbJournal } from "../../core/stores/dynamodb/journal/index.ts";
import { describeJournal } from "../conformance/journal.ts";
import { anyTable } from "../support/dynamodb-under-test.ts";
import { dynamodbJournalUnderTest } from "../support/journal-under-test.ts";
import { DONE, running } from "../support/runs.ts";
import { until } from "../support/until.ts";

describeJournal("dynamodb", dynamodbJournalUnderTest);

test("a purge reads no more expired runs once it has deleted as many as it may", async () => {
  const dynamodb = (await anyTable()).open();
  const journal = dynamodbJournal(dynamodb);
  for (let i = 0; i < 12; i += 1) {
    await journal.finish(await running(journal), { ...DONE, keep: 0 });
  }
  const query = dynamodb.query.bind(dynamodb);
  let shards = 0;
  dynamodb.query = (range) => {
    if (range.pk.startsWith("expiry/")) shards += 1;
    return query(range);
  };
  // A run expires by the clock of the store.
  await until(async () => {
    shards = 0;
    return (await journal.purge(1)) === 1;
  });
  const first = shards;
  expect(await journal.purge(100)).toBe(11);
  expect(shards - first).toBeGreaterThan(first);
  await dynamodb.close();
});
