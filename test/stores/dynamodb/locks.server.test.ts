import { expect, test } from "vitest";
import { compareFence } from "../../../core/lock/fence.ts";
import { dynamodbTable } from "../../../core/stores/dynamodb/client/table.ts";
import { Generation } from "../../../core/stores/dynamodb/locks/generation.ts";
import { dynamodbLocks } from "../../../core/stores/dynamodb/locks/index.ts";
import { open } from "../../../infra/open.ts";
import { cliInProcess } from "../../support/cli-in-process.ts";
import {
  anyTable,
  loseAnswer,
  type RequestFault,
  type TestTable,
  watch,
} from "../../support/dynamodb-under-test.ts";
import { pause } from "../../support/until.ts";

const LONG = 30_000;

/** Opens locks, and counts their requests by operation. */
function counted(table: TestTable) {
  const { dynamodb, requests } = watch(table);
  return { locks: dynamodbLocks(dynamodb, { closeDynamodb: true }), requests };
}

test("a lock and its release are one request each, and a refusal is one", async () => {
  const table = await anyTable();
  const { locks, requests } = counted(table);
  await using _ours = locks;
  await using others = dynamodbLocks(table.open(), { closeDynamodb: true });
  await (await locks.lock("warm up", { ttl: LONG, wait: LONG })).unlock();
  // The first read is repeated on a busy machine.
  expect(new Set(requests.splice(0))).toEqual(new Set(["GetItem", "UpdateItem"]));
  const lock = await locks.lock("job", { ttl: LONG, wait: LONG });
  expect(await lock.unlock()).toBe("released");
  expect(requests.splice(0)).toEqual(["UpdateItem", "UpdateItem"]);
  const held = await others.lock("job", { ttl: LONG, wait: LONG });
  expect(await locks.tryLock("job", { ttl: LONG })).toBeUndefined();
  expect(requests.splice(0)).toEqual(["UpdateItem"]);
  await held.unlock();
});

test("several locks are one transaction, and one read of each token", async () => {
  const { locks, requests } = counted(await anyTable());
  await using _ours = locks;
  await (await locks.lock("warm up", { ttl: LONG, wait: LONG })).unlock();
  requests.splice(0);
  const lock = await locks.lockAll(["a", "b"], { ttl: LONG, wait: LONG });
  await lock.unlock();
  expect(requests).toEqual(["TransactWriteItems", "GetItem", "GetItem", "TransactWriteItems"]);
});

test("a claim whose answer was lost is read back, and not sent again", async () => {
  let loses = false;
  const { dynamodb, requests } = watch(await anyTable(), (operation, pass) => {
    if (!loses || operation === "GetItem") return undefined;
    loses = false;
    return loseAnswer(pass);
  });
  await using locks = dynamodbLocks(dynamodb, { closeDynamodb: true });
  const first = await locks.lock("job", { ttl: LONG, wait: LONG });
  await first.unlock();
  requests.splice(0);
  loses = true;
  const lock = await locks.lock("job", { ttl: LONG, wait: LONG });
  expect(requests).toEqual(["UpdateItem", "GetItem"]);
  expect(lock.fence.token).toBe(first.fence.token + 1n);
  lock.assertHeld();
  await lock.unlock();
});

test("a new client does not take the lock of a dead holder before it has seen it for one ttl", async () => {
  const table = await anyTable();
  const ttl = 2_000;
  await using dead = dynamodbLocks(table.open(), { closeDynamodb: true });
  await using next = dynamodbLocks(table.open(), { closeDynamodb: true });
  // Connects and reads the generation first.
  for (const locks of [dead, next]) {
    await (await locks.lock("warm up", { ttl: LONG, wait: LONG })).unlock();
  }
  const lost = await dead.lock("job", { ttl, wait: LONG, renew: false });
  await pause(2 * ttl);
  expect(await next.tryLock("job", { ttl })).toBeUndefined();
  await pause(ttl + 50);
  const lock = await next.tryLock("job", { ttl: LONG });
  expect(lock && compareFence(lost.fence, lock.fence)).toBe(-1);
  expect(await lost.unlock()).toBe("was-lost");
  lock?.assertHeld();
  await lock?.unlock();
});

test("a generation is raised once no client uses the former one any more", async () => {
  const table = await anyTable();
  await using dynamodb = table.open();
  const { signal } = new AbortController();
  const [ours, theirs] = [new Generation(dynamodb, 200), new Generation(dynamodb, 200)];
  await theirs.current(signal);
  const startedAt = performance.now();
  await ours.raise(0);
  expect(performance.now() - startedAt).toBeGreaterThan(390);
  expect(() => theirs.checkFresh()).toThrow(/the last generation/);
});

test("a client that knows an older generation learns the new one from the lock", async () => {
  const table = await anyTable();
  const life = { closeDynamodb: true, generationLife: 500 };
  await using stale = dynamodbLocks(table.open(), { ...life, generationLife: LONG });
  await using operator = dynamodbLocks(table.open(), life);
  await (await stale.lock("job", { ttl: LONG, wait: LONG })).unlock();
  const generation = await operator.raiseGeneration();
  const lock = await operator.lock("job", { ttl: LONG, wait: LONG });
  await lock.unlock();
  const next = await stale.lock("job", { ttl: LONG, wait: LONG });
  expect(next.fence.generation).toBe(generation);
  expect(compareFence(lock.fence, next.fence)).toBe(-1);
  await next.unlock();
});

test("lockstep migrate makes the table that the URL names, once", async () => {
  const { url } = await anyTable();
  const table = `test-${crypto.randomUUID()}`;
  const store = url.replace(/test-[^?]*/, table);
  const migrate = (...args: readonly string[]) =>
    cliInProcess("migrate", "--store", store, ...args);
  await using opened = await open(store);
  await expect(opened.locks.tryLock("a", { ttl: LONG })).rejects.toThrow("run lockstep migrate");
  expect(await migrate("--status")).toMatchObject({
    status: 1,
    stdout: `pending  table ${table}\n`,
  });
  const { stdout, stderr } = await migrate("--print");
  expect(JSON.parse(stdout)).toMatchObject({ TableName: table });
  expect(stderr).toContain(`update-continuous-backups --table-name ${table}`);
  expect(await opened.table.exists()).toBe(false);
  const made = await Promise.all([1, 2, 3].map(() => opened.table.create()));
  expect(made.filter(Boolean)).toHaveLength(1);
  expect((await migrate("--status")).stdout).toBe(`applied  table ${table}\n`);
  expect((await migrate()).stdout).toBe("nothing to do\n");
  await (await opened.locks.lock("a", { ttl: LONG, wait: LONG })).unlock();
});

test("a table is made once although the answer to its making is lost", async () => {
  const name = `test-${crypto.randomUUID()}`;
  let isFirst = true;
  const loseFirst: RequestFault = (operation, pass) => {
    if (!isFirst || operation !== "CreateTable") return undefined;
    isFirst = false;
    return loseAnswer(pass);
  };
  const { dynamodb, requests } = watch(await anyTable(), loseFirst, { table: name });
  await using _ = dynamodb;
  expect(await dynamodbTable(dynamodb, name).create()).toBe(true);
  expect(requests.filter((one) => one === "CreateTable")).toHaveLength(2);
});
