import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { claimFence } from "../../core/database/claim.ts";
import { sql } from "../../core/database/sql.ts";
import { openSqlite } from "../../core/database/sqlite.ts";
import { type Fence, issueFence } from "../../core/lock/fence.ts";
import { sqliteStore } from "../../core/stores/sqlite/index.ts";
import { migrate } from "../../infra/migrate.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause } from "../support/until.ts";

test("a file that another process keeps locked does not block the event loop", async () => {
  const { file, remove } = await temporaryFile();
  const database = openSqlite(file);
  await database.packet([sql`CREATE TABLE t (a INTEGER)`]);
  const other = new DatabaseSync(file);
  other.exec("BEGIN IMMEDIATE");
  let ticks = 0;
  const ticking = setInterval(() => {
    ticks += 1;
  }, 5);
  const writing = database.packet([sql`INSERT INTO t VALUES (1)`, sql`INSERT INTO t VALUES (2)`]);
  await pause(300);
  expect(ticks).toBeGreaterThan(20);
  other.exec("COMMIT");
  await writing;
  clearInterval(ticking);
  expect(await database.read(sql`SELECT COUNT(*) AS n FROM t`)).toMatchObject([{ n: 2n }]);
  other.close();
  await database.close();
  await remove();
});

test("a file that stays locked is unavailable after the caller's limit, and nothing has happened", async () => {
  const { file, remove } = await temporaryFile();
  const database = openSqlite(file);
  await database.packet([sql`CREATE TABLE t (a INTEGER)`]);
  const other = new DatabaseSync(file);
  other.exec("BEGIN IMMEDIATE");
  const limit = new AbortController();
  const writing = database.packet([sql`INSERT INTO t VALUES (1)`], limit.signal);
  const outcome = expect(writing).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  await pause(50);
  limit.abort();
  await outcome;
  other.exec("COMMIT");
  expect(await database.read(sql`SELECT COUNT(*) AS n FROM t`)).toMatchObject([{ n: 0n }]);
  other.close();
  await database.close();
  await remove();
});

test("an open transaction keeps the same client's other calls out", async () => {
  const database = openSqlite(":memory:");
  await database.packet([sql`CREATE TABLE t (a INTEGER)`]);
  const writing = database.transaction(async (tx) => {
    await tx.packet([sql`INSERT INTO t VALUES (1)`]);
    await pause(20);
  });
  expect(await database.read(sql`SELECT COUNT(*) AS n FROM t`)).toMatchObject([{ n: 0n }]);
  await writing;
  await database.close();
});

test("who waits behind a transaction of the same client gives up at its limit, and nothing has happened", async () => {
  const database = openSqlite(":memory:");
  await database.packet([sql`CREATE TABLE t (a INTEGER)`]);
  const end = Promise.withResolvers<void>();
  const transaction = database.transaction(() => end.promise);
  const insert = sql`INSERT INTO t VALUES (1)`;
  for (const reason of [new Error("enough"), "enough", null]) {
    const limit = new AbortController();
    const outcomes = Promise.allSettled([
      database.packet([insert], limit.signal),
      database.transaction((tx) => tx.commit([insert]), limit.signal),
    ]);
    await pause(10);
    limit.abort(reason);
    for (const outcome of await outcomes) {
      expect(outcome).toMatchObject({ reason: { code: "STORE_UNAVAILABLE", cause: reason } });
    }
    await expect(database.packet([insert], limit.signal)).rejects.toMatchObject({ cause: reason });
  }
  end.resolve();
  await transaction;
  expect(await database.read(sql`SELECT COUNT(*) AS n FROM t`)).toMatchObject([{ n: 0n }]);
  await database.close();
});

test("a call inside of a transaction of the same client is refused at once, as it would wait for itself", async () => {
  const { file, remove } = await temporaryFile();
  const database = openSqlite(file);
  await migrate(database);
  const locks = sqliteStore(database);
  const refused = { code: "STORE_REFUSED", message: expect.stringContaining("`tx`") };
  let late: Promise<unknown> = Promise.resolve();
  await database.transaction(async () => {
    await expect(locks.lock("a", { ttl: 1_000, wait: 1_000 })).rejects.toMatchObject(refused);
    await expect(database.read(sql`SELECT 1`)).rejects.toMatchObject(refused);
    await expect(database.transaction(async () => {})).rejects.toMatchObject(refused);
    // What goes on after the transaction is not inside of it any more.
    late = pause(20).then(() => database.read(sql`SELECT 1`));
  });
  await late;
  const lock = await locks.lock("a", { ttl: 1_000, wait: 0 });
  await lock.unlock();
  await locks.close();
  await database.close();
  await remove();
});

test("a folder is made for a file where it alone is missing, and refused otherwise", async () => {
  const { file, remove } = await temporaryFile();
  const folder = dirname(file);
  const inside = openSqlite(join(folder, "new", "test.db"));
  await inside.read(sql`SELECT 1`);
  await inside.close();
  for (const [path, problem] of [
    [join(folder, "a", "b", "test.db"), "folder"],
    ["/proc/no-such-folder/test.db", "folder"],
    ["/etc/passwd/test.db", "open"],
    [folder, "open"],
  ] as const) {
    const database = openSqlite(path);
    await expect(database.read(sql`SELECT 1`)).rejects.toMatchObject({
      code: "STORE_REFUSED",
      message: expect.stringContaining(problem),
    });
    await database.close();
  }
  await remove();
});

test("a claim from before owners were kept is that of whoever comes with its fence first", async () => {
  const { file, remove } = await temporaryFile();
  const database = openSqlite(file);
  await migrate(database);
  const fences = ["one", "another"].map((owner) => issueFence("a", 1, 7n, owner));
  const [first, second] = fences as [Fence, Fence];
  await database.packet([
    sql`INSERT INTO lockstep_claim (resource, generation, token) VALUES (${"a"}, ${1}, ${7})`,
  ]);
  const claim = (fence: Fence) =>
    database.transaction(async (tx) => {
      await claimFence(database, tx, fence);
      await tx.commit([]);
    });
  await claim(first);
  await claim(first);
  await expect(claim(second)).rejects.toMatchObject({ code: "FENCED_OUT" });
  await claim(issueFence("a", 1, 8n, "another"));
  await expect(claim(first)).rejects.toMatchObject({ code: "FENCED_OUT" });
  await database.close();
  await remove();
});
