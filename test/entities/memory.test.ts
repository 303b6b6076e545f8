import { expect, test } from "vitest";
import { z } from "zod";
import { race } from "../../core/lock/abort.ts";
import { entity } from "../../core/steps/entity/entity.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { runWorker } from "../../functions/worker/worker.ts";
import { describeEntities } from "../conformance/entities.ts";
import { account, hooks } from "../support/account.ts";
import { memoryJournalUnderTest } from "../support/journal-under-test.ts";
import { pause, until, within } from "../support/until.ts";

describeEntities("memory", memoryJournalUnderTest);

test("a handler with writes fails on a journal without a database", async () => {
  const mine = createRuntime({ journal: memoryJournal() }).entity(account, "a");
  const book = mine.call("book", "x", { operationId: "1" });
  await expect(book).rejects.toThrow("`writes` of a handler need a journal in a database");
  expect(await mine.state()).toMatchObject({ balance: 0 });
});

test("a call ends although others send to its key all the time, and another caller takes the turn", async () => {
  const journal = memoryJournal();
  const [ours, theirs] = [createRuntime({ journal }), createRuntime({ journal })];
  hooks.deposit = () => pause(5);
  let isOver = false;
  let sent = 0;
  const send = async () => {
    for (; !isOver; sent += 1) {
      await theirs
        .entity(account, "hot")
        .call("deposit", 1, { operationId: `their ${crypto.randomUUID()}` });
    }
  };
  const first = ours.entity(account, "hot").call("deposit", 1, { operationId: "first" });
  const senders = Array.from({ length: 20 }, send);
  try {
    expect(await first).toBe(1);
    const then = sent;
    await until(() => sent > then + 20);
  } finally {
    isOver = true;
    await Promise.all(senders);
    hooks.deposit = async () => {};
  }
  const { balance } = await ours.entity(account, "hot").state();
  expect(balance).toBe(sent + 1);
});

test("a caller that leaves while its call takes the turn leaves the key free", async () => {
  const journal = memoryJournal();
  const { entities } = journal;
  // As a store does whose answer comes after the caller has left.
  const visit: typeof entities.visit = async (id, what, signal) => {
    const visited = await entities.visit(id, what);
    await (signal ? race(pause(50), signal) : pause(50));
    return visited;
  };
  const slow = createRuntime({ journal: { ...journal, entities: { ...entities, visit } } });
  const leaving = new AbortController();
  const call = slow
    .entity(account, "left")
    .call("deposit", 1, { operationId: "1", signal: leaving.signal });
  setTimeout(() => leaving.abort(new Error("left")), 10);
  await expect(call).rejects.toThrow("left");
  const next = createRuntime({ journal }).entity(account, "left");
  expect(await within(10_000, next.call("deposit", 1, { operationId: "2" }))).toBe(2);
});

test("one delivery handles all operations of a key, however long they take", async () => {
  const sweeper = createRuntime({ journal: memoryJournal() });
  const told = sweeper.entity(account, "long");
  hooks.deposit = () => pause(20);
  try {
    for (let i = 0; i < 60; i += 1) await told.tell("deposit", 1, { operationId: String(i) });
    expect(await sweeper.deliver()).toBe(60);
  } finally {
    hooks.deposit = async () => {};
  }
  expect(await told.state()).toMatchObject({ balance: 60 });
});

test("a worker that stops says so of a handler that has not ended, and frees its key", async () => {
  const journal = memoryJournal();
  const idle = workflow({ name: "idle", version: 1, input: z.null() }, async () => {});
  const runtime = createRuntime({ journal, workflows: [idle], entities: [account] });
  const end = new AbortController();
  const worker = runWorker({ runtime, signal: end.signal, drain: 20 });
  let hasBegun = false;
  hooks.deposit = async () => {
    hasBegun = true;
    await pause(60_000);
  };
  const told = createRuntime({ journal }).entity(account, "stuck");
  await told.tell("deposit", 5, { operationId: "1" });
  await until(() => hasBegun);
  end.abort();
  expect(await worker).toMatchObject({ isClean: false });
  hooks.deposit = async () => {};
  expect(await createRuntime({ journal, entities: [account] }).deliver()).toBe(1);
  expect(await told.state()).toMatchObject({ balance: 5 });
});

test("a handler that returns null for its writes has none", async () => {
  const loose = entity({ name: "loose", state: z.number(), initial: 0 }, (on) => ({
    add: on(z.number(), async ({ state }, n) => ({ state: state + n, writes: null as never })),
  }));
  const mine = createRuntime({ journal: memoryJournal() }).entity(loose, "a");
  await mine.call("add", 2, { operationId: "1" });
  expect(await mine.state()).toBe(2);
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
