import { fileURLToPath } from "node:url";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import type { EntityId } from "../../../core/journal/entities.ts";
import type { Journal } from "../../../core/journal/journal.ts";
import { createRuntime } from "../../../core/steps/runtime.ts";
import { workflow } from "../../../core/steps/workflow.ts";
import type { Dynamodb } from "../../../core/stores/dynamodb/client/dynamodb.ts";
import { TableClock } from "../../../core/stores/dynamodb/journal/clock.ts";
import { dynamodbJournal } from "../../../core/stores/dynamodb/journal/index.ts";
import { readRange } from "../../../core/stores/dynamodb/journal/values.ts";
import { dynamodbLocks } from "../../../core/stores/dynamodb/locks/index.ts";
import type { Fetch } from "../../../core/stores/fetch.ts";
import { runWorker } from "../../../functions/worker/worker.ts";
import { startCli } from "../../support/cli.ts";
import {
  anyTable,
  loseAnswer,
  type RequestFault,
  type TestTable,
  watch,
} from "../../support/dynamodb-under-test.ts";
import {
  claimed,
  claimOf,
  DONE,
  dueQuery,
  FOREVER,
  HASH,
  newRunId,
  record,
  running,
} from "../../support/runs.ts";
import { pause, until } from "../../support/until.ts";

/** Opens a journal with a fault between its writes and the server, which counts the requests. */
function faulty(table: TestTable, fault: RequestFault) {
  const { dynamodb, requests } = watch(table, (operation, ...request) => {
    const isWrite = operation === "UpdateItem" || operation === "TransactWriteItems";
    return isWrite ? fault(operation, ...request) : undefined;
  });
  return { journal: dynamodbJournal(dynamodb), dynamodb, take: () => requests.splice(0) };
}

test("each call is done once although the first answer to each of its writes is lost", async () => {
  let writes = 0;
  const table = await anyTable();
  const { journal, dynamodb } = faulty(table, (_, pass) => {
    writes += 1;
    return writes % 2 ? loseAnswer(pass) : undefined;
  });
  await using _ = dynamodb;
  await using admin = table.open();
  const ours = dynamodbJournal(admin);
  const workflowName = newRunId();
  const claim = claimOf(newRunId(), { workflow: workflowName, input: "x".repeat(5_000) });
  const run = { runId: claim.runId, epoch: (await claimed(journal, claim)).epoch };
  await journal.append(run, record("a"));
  await journal.append(run, record("b", { value: "x".repeat(300_000) }));
  const parent = { runId: run.runId, signal: "child" };
  await journal.start([{ ...claimOf(newRunId(), { workflow: workflowName }), parent }], run);
  const [child] = await journal.claimDue(dueQuery(workflowName));
  await journal.park(run, { ...FOREVER, reason: "child" });
  expect(await journal.finish(child as never, DONE)).toBe("ended");
  await journal.signal(run.runId, { name: "s", dedupeId: "1", payload: "1" });
  const [again] = await journal.claimDue(dueQuery(workflowName));
  expect(again).toMatchObject({ runId: run.runId, epoch: run.epoch + 1n, crashes: 0 });
  const second = { ...run, epoch: run.epoch + 1n };
  await journal.block(second, { error: '"e"', blocks: 1, retryIn: 600_000 });
  expect(await journal.reopen(second, { supersede: ["a"], isRetry: true })).toBe(true);
  const third = { ...run, epoch: second.epoch + 2n };
  expect(await claimed(journal, claim)).toMatchObject({ epoch: third.epoch, blocks: 0 });
  const mark = record("~fork/1", { kind: "fork" });
  const fork = { runId: newRunId(), owner: "o", step: "c", mark };
  const copies = { keep: ["b"], supersede: [], signals: [2] };
  expect(await journal.fork(third, { ...fork, ...copies })).toBe("forked");
  const next = { part: 1, input: '"next"', received: [1, 2] };
  expect(await journal.continueAsNew(third, next)).toBe("continued");
  expect(await journal.cancel(run.runId)).toBe("requested");
  expect(await ours.show(run.runId)).toMatchObject({
    ...{ part: 2, status: "parked", input: '"next"', cancelled: true, signals: [] },
    ...{ epoch: third.epoch, forks: [fork.runId] },
  });
  const before = await ours.show(run.runId, { part: 1 });
  expect(before?.records.map(({ key }) => key)).toEqual([`~old/${second.epoch}/a`, "b"]);
  const forked = await claimed(ours, { ...claim, runId: fork.runId });
  expect(forked.input).toBe(claim.input);
  expect(forked.records.map(({ key }) => key)).toEqual(["b", mark.key]);
  expect(forked.signals.map(({ name }) => name)).toEqual(["s"]);
  const expired = await running(journal);
  await journal.finish(expired, { ...DONE, keep: 0 });
  await until(async () => (await journal.purge(10)) >= 0 && !(await ours.find(expired.runId)));

  const id = { entity: "account", key: newRunId() };
  const message = { operationId: "1", handler: "add", input: "1", inputHash: HASH };
  const { claimed: mine } = await journal.entities.visit(id, { message, ttl: 60_000 });
  if (!mine) throw new Error("not claimed");
  expect(mine.messages).toEqual([message]);
  const answers = [{ message, outcome: "ok", value: "2" }] as const;
  const change = { state: "s".repeat(5_000), answers, writes: [], keep: 60_000 };
  expect(await journal.entities.commit(mine, change)).toEqual([]);
  expect(await ours.entities.read(id, "1")).toEqual({
    ...{ state: change.state, answer: { outcome: "ok", value: "2" }, freeIn: 0 },
  });
});

test("a write that arrives after its repetition changes nothing", async () => {
  let held: (() => ReturnType<Fetch>) | undefined;
  let isHolding = false;
  const { journal, dynamodb } = faulty(await anyTable(), (_, pass) => {
    if (!isHolding) return undefined;
    isHolding = false;
    held = pass;
    return Promise.reject(new Error("reset"));
  });
  await using _ = dynamodb;
  const delivered = async () => (await (await held?.())?.text()) ?? "";
  const run = await running(journal);
  isHolding = true;
  await journal.append(run, record("a"));
  expect(await delivered()).toContain("ConditionalCheckFailed");
  isHolding = true;
  await journal.signal(run.runId, { name: "s", dedupeId: "1", payload: "" });
  expect(await delivered()).toContain("ConditionalCheckFailed");
  isHolding = true;
  await journal.park(run, FOREVER);
  expect(await delivered()).toContain("ConditionalCheckFailed");
  const taken = await journal.take(run.claim);
  expect(taken).toMatchObject({ kind: "claimed", epoch: run.epoch + 1n, signals: [{ number: 1 }] });
  expect((await journal.show(run.runId))?.records).toHaveLength(1);
});

/** Opens a journal that calls `before` before each request. Its server's clock may be ahead. */
function hooked(
  table: TestTable,
  before: (operation: string, body: string) => unknown,
  aheadBy = 0,
) {
  const { dynamodb } = watch(table, async (operation, pass, body) => {
    await before(operation, body);
    const answer = await pass();
    if (aheadBy === 0) return answer;
    const date = new Date(Date.now() + aheadBy).toUTCString();
    const headers = { date, "content-type": answer.headers.get("content-type") ?? "" };
    return new Response(await answer.text(), { status: answer.status, headers });
  });
  return { journal: dynamodbJournal(dynamodb), dynamodb };
}

/** Returns a function that makes the call once. */
function firstTime(call: () => Promise<unknown>): () => Promise<unknown> | undefined {
  let isMade = false;
  return () => {
    if (isMade) return undefined;
    isMade = true;
    return call();
  };
}

test("a child with its parent's id is a conflict", async () => {
  await using dynamodb = (await anyTable()).open();
  const journal = dynamodbJournal(dynamodb);
  const run = await running(journal);
  const parent = { runId: run.runId, signal: "child" };
  const self = claimOf(run.runId, { inputHash: "f".repeat(64), parent });
  const started = await journal.start([self, { ...claimOf(newRunId()), parent }], run);
  expect(started.map(({ kind }) => kind)).toEqual(["conflict", "parked"]);
  expect(await journal.renew(run, 600_000)).toBeDefined();
});

test("a long result is written while its run is renewed", async () => {
  let renewed: unknown;
  const { journal, dynamodb } = hooked(await anyTable(), async (operation) => {
    if (operation === "UpdateItem") renewed = await journal.renew(run, 600_000);
  });
  await using _ = dynamodb;
  const run = await running(journal);
  await journal.append(run, record("a", { value: "x".repeat(100_000) }));
  expect(renewed).toBeDefined();
});

test.each([true, false])(
  "a run that ends while runs are listed is listed once (%s)",
  async (isLate) => {
    const table = await anyTable();
    await using admin = table.open();
    const ours = dynamodbJournal(admin);
    const run = await running(ours);
    let ended: Promise<unknown> | undefined;
    const { journal, dynamodb } = hooked(table, async (operation, body) => {
      if (operation !== "Query" || body.includes("open/") !== isLate) return;
      ended ??= ours.finish(run, DONE);
      await ended;
    });
    await using _ = dynamodb;
    expect((await journal.list()).map(({ runId }) => runId)).toEqual([run.runId]);
  },
);

/** Executes a run of one step to its end. */
async function endedRun(journal: Journal) {
  const run = await running(journal);
  await journal.append(run, record("a"));
  await journal.finish(run, DONE);
  return run;
}

test("a fork is refused if its origin is reopened during the copy", async () => {
  const table = await anyTable();
  await using admin = table.open();
  const ours = dynamodbJournal(admin);
  const run = await endedRun(ours);
  const reopen = firstTime(() => ours.reopen(run, { supersede: ["a"], isRetry: true }));
  const { journal, dynamodb } = hooked(table, (operation, body) =>
    operation === "TransactWriteItems" && body.includes("open/") ? reopen() : undefined,
  );
  await using _ = dynamodb;
  const mark = record("~fork/1", { kind: "fork" });
  const fork = { runId: newRunId(), owner: "o", step: "b", mark };
  expect(await journal.fork(run, { ...fork, keep: ["a"], supersede: [], signals: [] })).toBe(
    "changed",
  );
  expect(await ours.find(fork.runId)).toBeUndefined();
});

test("a run that is reopened while another process purges it keeps its records", async () => {
  const table = await anyTable();
  await using admin = table.open();
  const ours = dynamodbJournal(admin);
  const run = await endedRun(ours);
  const reopen = firstTime(() => ours.reopen(run, { supersede: [], isRetry: true }));
  const isWrite = (operation: string) => /Write|Update|Delete/.test(operation);
  const { journal, dynamodb } = hooked(
    table,
    (operation) => (isWrite(operation) ? reopen() : undefined),
    3_600_000,
  );
  await using _ = dynamodb;
  // The answers tell the clock.
  await journal.find(run.runId);
  expect(await journal.purge(10)).toBe(0);
  expect((await ours.show(run.runId))?.records.map(({ key }) => key)).toEqual(["a"]);
});

const message = { operationId: "1", handler: "add", input: "1", inputHash: HASH };
const answers = [{ message, outcome: "ok", value: "2" }] as const;
const stateOf = (letter: string) => letter.repeat(5_000);
const commitOf = (letter: string, keep = 600_000) => ({
  ...{ state: stateOf(letter), answers, writes: [], keep },
});

/** Claims an entity for its message, which may be a new one. */
async function visited(journal: Journal, id: EntityId, operationId = "1") {
  const visit = { message: { ...message, operationId }, ttl: 600_000 };
  const { claimed: claim } = await journal.entities.visit(id, visit);
  if (!claim) throw new Error("not claimed");
  return claim;
}

test("the state of an entity survives a lost answer, and many messages meanwhile", async () => {
  const table = await anyTable();
  await using admin = table.open();
  const ours = dynamodbJournal(admin);
  const id = { entity: "account", key: newRunId() };
  let isArmed = false;
  const { journal, dynamodb } = faulty(table, (operation, pass) => {
    if (!isArmed || operation !== "TransactWriteItems") return undefined;
    isArmed = false;
    const deliver = async () => {
      for (let i = 2; i < 22; i += 1) {
        await ours.entities.visit(id, { message: { ...message, operationId: String(i) } });
      }
      return Promise.reject(new Error("the answer is lost"));
    };
    return pass().then(deliver);
  });
  await using _ = dynamodb;
  const claim = await visited(journal, id);
  isArmed = true;
  expect(await journal.entities.commit(claim, commitOf("s"))).toHaveLength(20);
  expect(await ours.entities.read(id)).toMatchObject({ state: stateOf("s") });
});

test("a commit that is done resolves although the former state cannot be deleted", async () => {
  const table = await anyTable();
  const id = { entity: "account", key: newRunId() };
  let commits = 0;
  const { journal, dynamodb } = hooked(table, (operation, body) => {
    if (operation === "TransactWriteItems" && body.includes("answers/")) commits += 1;
    if (operation === "Query" && commits === 2) throw new Error("no connection");
  });
  await using _ = dynamodb;
  await journal.entities.commit(await visited(journal, id), commitOf("a"));
  const claim = await visited(journal, id, "2");
  const second = [{ ...answers[0], message: { ...message, operationId: "2" } }];
  expect(await journal.entities.commit(claim, { ...commitOf("b"), answers: second })).toEqual([]);
  commits = 0;
  expect(await journal.entities.read(id)).toMatchObject({ state: stateOf("b") });
});

test("a long input is deleted once its message is answered", async () => {
  const table = await anyTable();
  await using dynamodb = table.open();
  const { entities } = dynamodbJournal(dynamodb);
  const id = { entity: "account", key: newRunId() };
  const chunks = async () => {
    const range = { pk: `entity/7/account/${id.key}`, from: "value/", to: "value0" };
    return (await readRange(dynamodb, range)).length;
  };
  const input = JSON.stringify("x".repeat(300_000));
  const { claimed } = await entities.visit(id, { message: { ...message, input }, ttl: 600_000 });
  if (!claimed) throw new Error("the entity is not free");
  expect(claimed.messages).toMatchObject([{ input }]);
  expect(await chunks()).toBe(3);
  await entities.commit(claimed, { ...commitOf("a"), state: "short" });
  expect(await chunks()).toBe(0);
  expect(await entities.read(id)).toMatchObject({ state: "short" });
});

test("a state that is replaced while it is read is read again", async () => {
  const table = await anyTable();
  await using admin = table.open();
  const ours = dynamodbJournal(admin);
  const id = { entity: "account", key: newRunId() };
  await ours.entities.commit(await visited(ours, id), commitOf("a"));
  const second = [{ ...answers[0], message: { ...message, operationId: "2" } }];
  const replace = firstTime(async () => {
    const claim = await visited(ours, id, "2");
    await ours.entities.commit(claim, { ...commitOf("b"), answers: second });
  });
  const { journal, dynamodb } = hooked(table, (operation) =>
    operation === "Query" ? replace() : undefined,
  );
  await using _ = dynamodb;
  expect(await journal.entities.read(id)).toMatchObject({ state: stateOf("b") });
});

test("an operation that is delivered anew while others purge it is handled once", async () => {
  const table = await anyTable();
  await using admin = table.open();
  const ours = dynamodbJournal(admin);
  const id = { entity: "account", key: newRunId() };
  await ours.entities.commit(await visited(ours, id), commitOf("a", 1));
  await pause(10);
  const redeliver = firstTime(async () => {
    expect(await ours.entities.purge(10)).toBe(1);
    await ours.entities.visit(id, { message });
  });
  const { journal, dynamodb } = hooked(table, (operation) =>
    operation === "TransactWriteItems" ? redeliver() : undefined,
  );
  await using _ = dynamodb;
  await journal.entities.purge(10);
  const claim = await visited(ours, id);
  expect(await ours.entities.commit(claim, commitOf("b"))).toEqual([]);
  expect(await ours.entities.waiting(["account"], 10)).toEqual([]);
  expect(await ours.entities.visit(id, { ttl: 600_000 })).toMatchObject({ claimed: undefined });
});

test("a record is one request of its holder, and a renewal another", async () => {
  const { journal, dynamodb, take } = faulty(await anyTable(), () => undefined);
  await using _ = dynamodb;
  const run = await running(journal);
  const costs = async (call: () => Promise<unknown>) => {
    take();
    await call();
    return take();
  };
  const one = ["TransactWriteItems"];
  expect(await costs(() => journal.append(run, record("a")))).toEqual(one);
  expect(await costs(() => journal.renew(run, 600_000))).toEqual(one);
  expect(await costs(() => journal.append(run, record("b")))).toEqual(one);
  expect(await costs(() => journal.park(run, { ...FOREVER, wakeIn: 0 }))).toEqual(one);
});

test("the time is the server's, however wrong the clock of the process is", async () => {
  const clock = new TableClock();
  expect(Math.abs(clock.now() - Date.now())).toBeLessThan(1_000);
  for (const wrong of [-3_600_000, 3_600_000]) {
    const server = Date.now() - wrong;
    clock.see(server, performance.now() - 5);
    await pause(5);
    const now = clock.now();
    expect(now).toBeGreaterThanOrEqual(server);
    expect(now).toBeLessThan(server + 2_000);
  }
});

const effects: string[] = [];

const errand = workflow(
  { name: "errand", version: 1, input: z.object({ id: z.string() }), id: ({ id }) => id },
  async (ctx, { id }) => {
    await ctx.step("first", async () => void effects.push(`${id} first`));
    await ctx.sleep("nap", 50);
    await ctx.step("second", { lock: "desk" }, async () => void effects.push(`${id} second`));
  },
);

test("two workers share the due runs, and execute each step once", async () => {
  const table = await anyTable();
  const worker = async (dynamodb: Dynamodb) => {
    const locks = dynamodbLocks(dynamodb, { closeDynamodb: true });
    const runtime = createRuntime({
      ...{ journal: dynamodbJournal(dynamodb), locks, inlineWait: 5 },
      ...{ workflows: [errand], lease: "60s" },
    });
    const end = new AbortController();
    const ended = runWorker({ runtime, concurrency: 4, signal: end.signal });
    const close = async () => {
      end.abort();
      const report = await ended;
      await locks.close();
      return report;
    };
    return { runtime, close };
  };
  const workers = await Promise.all([worker(table.open()), worker(table.open())]);
  const ids = Array.from({ length: 30 }, (_, i) => `errand-${i}`);
  for (const id of ids) await workers[0].runtime.start(errand, { id });
  const { journal } = workers[0].runtime;
  const completed = () => journal.list({ status: "completed", limit: 100 });
  await until(async () => (await completed()).length === ids.length, 120_000);
  expect(effects.toSorted()).toEqual(ids.flatMap((id) => [`${id} first`, `${id} second`]).sort());
  for (const { close } of workers) expect(await close()).toMatchObject({ isClean: true });
}, 180_000);

test("another worker goes on with the runs of a killed one", async () => {
  const { url, open } = await anyTable();
  const module = fileURLToPath(new URL("../../programs/steady.ts", import.meta.url));
  const start = () => startCli(["worker", module, "--store", url, "--lease", "2s"]);
  await using dynamodb = open();
  const journal = dynamodbJournal(dynamodb);
  const { default: steady } = await import("../../programs/steady.ts");
  const runtime = createRuntime({ journal, workflows: [steady] });
  const ids = Array.from({ length: 6 }, (_, i) => `steady-${i}`);
  for (const id of ids) await runtime.start(steady, { id });
  const first = start();
  const isUnderWay = async () => {
    const runs = await Promise.all(ids.map((id) => journal.show(id)));
    return runs.some((run) => run?.status === "running" && run.records.length > 0);
  };
  await until(isUnderWay);
  first.child.kill("SIGKILL");
  const second = start();
  const completed = () => journal.list({ status: "completed", limit: 100 });
  await until(async () => (await completed()).length === ids.length, 120_000);
  second.child.kill("SIGTERM");
  await second.finished;
  for (const id of ids) {
    const run = await journal.show(id);
    expect(run?.ending?.value).toBe('{"json":10}');
    const results = run?.records.filter(({ outcome }) => outcome === "ok") ?? [];
    expect(results).toHaveLength(10);
  }
}, 240_000);

test("queues and keys that are named twice count once", async () => {
  await using dynamodb = (await anyTable()).open();
  const journal = dynamodbJournal(dynamodb);
  const key = { pk: `test/${newRunId()}`, sk: "a" };
  await dynamodb.write([{ key, update: "SET #x = :x", values: { x: 1 } }]);
  const { items } = await dynamodb.read([key, key]);
  expect(items.map((item) => item?.x)).toEqual(["1", "1"]);
  const query = { ...dueQuery(newRunId()), queues: ["mail", "mail"] };
  expect(await journal.claimDue(query)).toEqual([]);
});

test("new limits of a queue forget no claim under them", async () => {
  const table = await anyTable();
  const queue = newRunId();
  const workflowName = newRunId();
  const limits = { ratePerKey: { runs: 1, per: 3_600_000 } };
  await using admin = table.open();
  const others = dynamodbJournal(admin);
  const claimOne = () => others.claimDue({ ...dueQuery(workflowName), queues: [queue], limit: 1 });
  let isArmed = false;
  const { dynamodb } = watch(table, (operation, pass, body) => {
    if (!isArmed || operation !== "Query" || !body.includes(`rates/${queue}`)) return undefined;
    isArmed = false;
    // A claim under the new limits, while the old rates are being read.
    return pass().then(async (answer) => {
      expect(await claimOne()).toHaveLength(1);
      return answer;
    });
  });
  await using _ = dynamodb;
  await others.setLimits(queue, limits);
  const start = (runId: string) =>
    others.start([{ ...claimOf(runId, { workflow: workflowName }), turn: { queue, key: "k" } }]);
  await start(newRunId());
  expect(await claimOne()).toHaveLength(1);
  await start(newRunId());
  await start(newRunId());
  expect(await claimOne()).toEqual([]);
  isArmed = true;
  await dynamodbJournal(dynamodb).setLimits(queue, limits);
  expect(isArmed).toBe(false);
  expect(await claimOne()).toEqual([]);
});

test("a debounced start that meets two others leaves a run whose long input can be read", async () => {
  const table = await anyTable();
  await using admin = table.open();
  const ours = dynamodbJournal(admin);
  const workflowName = newRunId();
  const run = (more = {}) =>
    claimOf(newRunId(), { workflow: workflowName, input: "x".repeat(5_000), ...more });
  const first = run();
  const debounce = { key: "k", quiet: 0 };
  await ours.startKeyed(first, debounce);
  // A worker claims the first run, and another start makes the second one.
  const meetings = [
    () => claimed(ours, first),
    () => ours.startKeyed(run(), { key: "k", quiet: 600_000 }),
  ];
  const { journal, dynamodb } = hooked(table, (operation, body) =>
    operation === "TransactWriteItems" && body.includes("head") ? meetings.shift()?.() : undefined,
  );
  await using _ = dynamodb;
  const last = run({ input: "y".repeat(5_000) });
  const { runId } = await journal.startKeyed(last, debounce);
  expect(meetings).toEqual([]);
  expect(await ours.show(runId)).toMatchObject({ input: last.input });
});

test("a history that cannot be read costs no other run that was claimed with it", async () => {
  const table = await anyTable();
  const [good, bad] = [newRunId(), newRunId()];
  const { journal, dynamodb } = hooked(table, (operation, body) => {
    if (operation === "Query" && body.includes(`run/${bad}`)) throw new Error("no connection");
  });
  await using _ = dynamodb;
  await journal.start([claimOf(bad), claimOf(good)]);
  expect(await journal.claimDue(dueQuery("order"))).toMatchObject([{ runId: good }]);
});

test("a process that was frozen finds with its first claim what is due by the server's clock", async () => {
  const table = await anyTable();
  await using admin = table.open();
  const run = claimOf(newRunId());
  await dynamodbJournal(admin).startKeyed(run, { key: "k", quiet: 600_000 });
  const { journal, dynamodb } = hooked(table, () => undefined, 3_600_000);
  await using _ = dynamodb;
  expect(await journal.claimDue(dueQuery("order"))).toMatchObject([{ runId: run.runId }]);
});

test("an answer before a freeze in which the monotonic clock stood still is not fresh", () => {
  const clock = new TableClock();
  clock.see(Date.now(), performance.now());
  expect(clock.isFresh).toBe(true);
  const thawed = Date.now() + 60_000;
  const now = vi.spyOn(Date, "now").mockImplementation(() => thawed);
  expect(clock.isFresh).toBe(false);
  now.mockRestore();
});

test.each([{}, { concurrency: 5 }])(
  "limits that arrive late leave newer ones as they are",
  async (limits) => {
    const table = await anyTable();
    await using admin = table.open();
    const ours = dynamodbJournal(admin);
    let held: (() => ReturnType<Fetch>) | undefined;
    const { journal, dynamodb } = faulty(table, (_, pass) => {
      if (held) return undefined;
      held = pass;
      return Promise.reject(new Error("reset"));
    });
    await using _ = dynamodb;
    await ours.setLimits("mail", { concurrency: 2 });
    await journal.setLimits("mail", limits);
    await ours.setLimits("mail", { concurrency: 1 });
    await (await held?.())?.text();
    expect([...(await ours.limits())]).toEqual([["mail", { concurrency: 1 }]]);
    await ours.setLimits("mail", {});
    expect((await ours.limits()).size).toBe(0);
  },
);

test("a claim of an expired run's id does not wait for the end of a slow deletion", async () => {
  const table = await anyTable();
  await using admin = table.open();
  const ours = dynamodbJournal(admin);
  const run = await running(ours);
  for (let i = 0; i < 25; i += 1) await ours.append(run, record(`step-${i}`));
  await ours.finish(run, { ...DONE, keep: 0 });
  await pause(10);
  const recordsLeft = async () => {
    const range = { pk: `run/${run.runId}`, from: "0", to: "9" };
    return (await readRange(admin, range)).length;
  };
  let deletions = 0;
  const { journal, dynamodb } = hooked(table, async (operation, body) => {
    if (operation !== "TransactWriteItems" || body.includes('"Update"')) return;
    deletions += 1;
    await pause(2_000);
  });
  await using _ = dynamodb;
  await claimed(journal, { ...run.claim, ttl: 60_000 });
  expect(deletions).toBe(1);
  await until(async () => (await recordsLeft()) === 0);
});

test("ids that begin with the last character are found", async () => {
  await using dynamodb = (await anyTable()).open();
  const journal = dynamodbJournal(dynamodb);
  const idOf = (end: string) => "\u{10ffff}".repeat(20) + end;
  await journal.setLimits("default", { concurrency: 1 });
  await journal.setLimits(idOf("queue"), { concurrency: 1 });
  expect((await journal.limits()).size).toBe(2);
  await journal.start([claimOf(idOf("1")), claimOf(idOf("2"))]);
  expect(await journal.claimDue(dueQuery("order"))).toHaveLength(1);
  expect(await journal.claimDue(dueQuery("order"))).toHaveLength(0);
});
