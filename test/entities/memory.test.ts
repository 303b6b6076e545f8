import { expect, test } from "vitest";
import { z } from "zod";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { runWorker } from "../../functions/worker/worker.ts";
import { describeEntities } from "../conformance/entities.ts";
import { account } from "../support/account.ts";
import { memoryJournalUnderTest } from "../support/journal-under-test.ts";
import { until } from "../support/until.ts";

describeEntities("memory", memoryJournalUnderTest);

test("a handler with writes fails on a journal without a database", async () => {
  const mine = createRuntime({ journal: memoryJournal() }).entity(account, "a");
  const book = mine.call("book", "x", { operationId: "1" });
  await expect(book).rejects.toThrow("`writes` of a handler need a journal in a database");
  expect(await mine.state()).toMatchObject({ balance: 0 });
});

test("a worker handles operations that were told by another process", async () => {
  const journal = memoryJournal();
  const idle = workflow({ name: "idle", version: 1, input: z.null() }, async () => {});
  const runtime = createRuntime({ journal, workflows: [idle], entities: [account] });
  const end = new AbortController();
  const worker = runWorker({ runtime, signal: end.signal });
  const mine = createRuntime({ journal }).entity(account, "told");
  await mine.tell("deposit", 5, { operationId: "1" });
  await until(async () => (await mine.state()).balance === 5);
  end.abort();
  expect(await worker).toMatchObject({ isClean: true });
});
