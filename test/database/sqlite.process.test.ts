import { copyFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { claimFence } from "../../core/database/claim.ts";
import { sql } from "../../core/database/sql.ts";
import { type Fence, issueFence } from "../../core/lock/fence.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { runProgram } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

test("a file that another process keeps locked does not block the event loop", async () => {
  const { file, remove } = await temporaryFile();
  const database = sqliteDatabase(file);
  await database.batch([sql`CREATE TABLE t (a INTEGER)`]);
  const other = new DatabaseSync(file);
  other.exec("BEGIN IMMEDIATE");
  let ticks = 0;
  const ticking = setInterval(() => {
    ticks += 1;
  }, 5);
  const writing = database.batch([sql`INSERT INTO t VALUES (1)`, sql`INSERT INTO t VALUES (2)`]);
  await until(() => ticks > 20);
  other.exec("COMMIT");
  await writing;
  clearInterval(ticking);
  expect(await database.read(sql`SELECT COUNT(*) AS n FROM t`)).toMatchObject([{ n: 2n }]);
  other.close();
  await database.close();
  await remove();
});

test("a call on a locked file rejects as unavailable at the caller's limit, and changes nothing", async () => {
  const { file, remove } = await temporaryFile();
  const database = sqliteDatabase(file);
  await database.batch([sql`CREATE TABLE t (a INTEGER)`]);
  const other = new DatabaseSync(file);
  other.exec("BEGIN IMMEDIATE");
  const limit = new AbortController();
  const writing = database.batch([sql`INSERT INTO t VALUES (1)`], limit.signal);
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

test("a commit with a failed disk write has an unknown outcome; a read does not", async () => {
  const { file, remove } = await temporaryFile();
  const script = fileURLToPath(new URL("../scripts/disk.ts", import.meta.url));
  // The log grows to the process's limit on file sizes.
  const limited = ["-c", 'ulimit -f 1024 && exec "$@"', "sh", process.execPath, script, file];
  using child = runProgram("sh", limited);
  const unknown = "UNKNOWN_OUTCOME";
  expect(JSON.parse(await child.line())).toEqual({
    alone: unknown,
    several: unknown,
    transaction: unknown,
    read: "done",
  });
  expect(await child.ended).toBe(0);
  await remove();
});

test("a client refuses its file after a deletion or replacement, so that a lock has one holder", async () => {
  for (const replace of [
    (file: string) => rm(file),
    async (file: string) => {
      await copyFile(file, `${file}.copy`);
      await rename(`${file}.copy`, file);
    },
  ]) {
    const { file, remove } = await temporaryFile();
    const [ours, theirs] = [sqliteDatabase(file), sqliteDatabase(file)];
    await migrate(ours);
    const [a, b] = [sqlLocks(ours), sqlLocks(theirs)];
    const lock = await a.lock("a", { ttl: 30_000, wait: 0 });
    await replace(file);
    await migrate(theirs);
    await b.lock("b", { ttl: 30_000, wait: 0 });
    const refused = { code: "STORE_REFUSED", message: expect.stringContaining("replaced") };
    await expect(a.tryLock("c", { ttl: 30_000 })).rejects.toMatchObject(refused);
    await expect(lock.ensure(29_900)).rejects.toMatchObject(refused);
    const writing = ours.transaction(async (tx) => tx.commit([]));
    await expect(writing).rejects.toMatchObject(refused);
    await Promise.all([ours.close(), theirs.close()]);
    await remove();
  }
});

test("a transaction does not commit to a file that was replaced during it", async () => {
  const { file, remove } = await temporaryFile();
  const database = sqliteDatabase(file);
  await database.batch([sql`CREATE TABLE t (a INTEGER)`]);
  const writing = database.transaction(async (tx) => {
    await tx.batch([sql`INSERT INTO t VALUES (1)`]);
    await rm(file);
    await tx.commit([]);
  });
  await expect(writing).rejects.toMatchObject({ code: "STORE_REFUSED" });
  await database.close();
  await remove();
});

test("an open transaction excludes other calls of the same client", async () => {
  const database = sqliteDatabase(":memory:");
  await database.batch([sql`CREATE TABLE t (a INTEGER)`]);
  const writing = database.transaction(async (tx) => {
    await tx.batch([sql`INSERT INTO t VALUES (1)`]);
    await pause(20);
  });
  expect(await database.read(sql`SELECT COUNT(*) AS n FROM t`)).toMatchObject([{ n: 0n }]);
  await writing;
  await database.close();
});

test("a call that waits for a transaction of the same client rejects at its limit, and changes nothing", async () => {
  const database = sqliteDatabase(":memory:");
  await database.batch([sql`CREATE TABLE t (a INTEGER)`]);
  const end = Promise.withResolvers<void>();
  const transaction = database.transaction(() => end.promise);
  const insert = sql`INSERT INTO t VALUES (1)`;
  for (const reason of [new Error("enough"), "enough", null]) {
    const limit = new AbortController();
    const outcomes = Promise.allSettled([
      database.batch([insert], limit.signal),
      database.transaction((tx) => tx.commit([insert]), limit.signal),
    ]);
    await pause(10);
    limit.abort(reason);
    for (const outcome of await outcomes) {
      expect(outcome).toMatchObject({ reason: { code: "STORE_UNAVAILABLE", cause: reason } });
    }
    await expect(database.batch([insert], limit.signal)).rejects.toMatchObject({ cause: reason });
  }
  end.resolve();
  await transaction;
  const aborted = database.batch([insert], AbortSignal.abort(new Error("enough")));
  await expect(aborted).rejects.toThrow("the call took too long, or was aborted");
  expect(await database.read(sql`SELECT COUNT(*) AS n FROM t`)).toMatchObject([{ n: 0n }]);
  await database.close();
});

test("a transaction whose signal aborts is rolled back at once, and cannot commit", async () => {
  const { file, remove } = await temporaryFile();
  const [database, other] = [sqliteDatabase(file), sqliteDatabase(file)];
  await database.batch([sql`CREATE TABLE t (a INTEGER)`]);
  const insert = sql`INSERT INTO t VALUES (1)`;
  const limit = new AbortController();
  const writing = database.transaction(async (tx) => {
    await tx.batch([insert]);
    limit.abort("lost");
    // Another process does not wait for the body.
    await other.batch([sql`INSERT INTO t VALUES (2)`]);
    await tx.commit([insert]);
  }, limit.signal);
  await expect(writing).rejects.toMatchObject({ code: "STORE_UNAVAILABLE", cause: "lost" });
  expect(await database.read(sql`SELECT a FROM t`)).toEqual([{ a: 2n }]);
  await database.batch([insert]);
  await Promise.all([database.close(), other.close()]);
  await remove();
});

test("a client refuses a call inside of its own transaction, which would wait for itself", async () => {
  const { file, remove } = await temporaryFile();
  const database = sqliteDatabase(file);
  await migrate(database);
  const locks = sqlLocks(database);
  const refused = { code: "STORE_REFUSED", message: expect.stringContaining("`tx`") };
  let late: Promise<unknown> = Promise.resolve();
  await database.transaction(async () => {
    await expect(locks.lock("a", { ttl: 1_000, wait: 1_000 })).rejects.toMatchObject(refused);
    await expect(database.read(sql`SELECT 1`)).rejects.toMatchObject(refused);
    await expect(database.transaction(async () => {})).rejects.toMatchObject(refused);
    // Work that continues after the transaction is outside of it.
    late = pause(20).then(() => database.read(sql`SELECT 1`));
  });
  await late;
  const lock = await locks.lock("a", { ttl: 1_000, wait: 0 });
  await lock.unlock();
  await locks.close();
  await database.close();
  await remove();
});

test("a client makes its file's folder, and refuses a file whose parent folder is missing too", async () => {
  const { file, remove } = await temporaryFile();
  const folder = dirname(file);
  const inside = sqliteDatabase(join(folder, "new", "test.db"));
  await inside.read(sql`SELECT 1`);
  await inside.close();
  for (const [path, problem] of [
    [join(folder, "a", "b", "test.db"), "folder"],
    ["/proc/no-such-folder/test.db", "folder"],
    ["/etc/passwd/test.db", "open"],
    [folder, "open"],
  ] as const) {
    const database = sqliteDatabase(path);
    await expect(database.read(sql`SELECT 1`)).rejects.toMatchObject({
      code: "STORE_REFUSED",
      message: expect.stringContaining(problem),
    });
    await database.close();
  }
  await remove();
});

test("a claim without an owner belongs to the first holder with an equal fence", async () => {
  const { file, remove } = await temporaryFile();
  const database = sqliteDatabase(file);
  await migrate(database);
  const fences = ["one", "another"].map((owner) => issueFence("a", 1, 7n, owner));
  const [first, second] = fences as [Fence, Fence];
  await database.batch([
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

test("a transaction that SQLite has rolled back for a renewal commits nothing more", async () => {
  const { file, remove } = await temporaryFile();
  await using database = sqliteDatabase(file);
  await migrate(database);
  await database.batch([sql`CREATE TABLE purchase (id TEXT)`, sql`CREATE TABLE big (text TEXT)`]);
  const inventory = sqlInventory(database);
  await inventory.set({ sku: "cup", quantity: 5, operationId: "set" });
  const sold = database.transaction(async (tx) => {
    await inventory.within(tx).decrement({ sku: "cup", quantity: 2, operationId: "sale" });
    await tx.batch([sql`PRAGMA max_page_count = 1`]);
    const renewal = sql`INSERT INTO big VALUES (${"x".repeat(5_000_000)})`;
    const full = { code: expect.stringMatching(/^STORE_/) };
    await expect(database.batch([renewal], undefined, "renewals")).rejects.toMatchObject(full);
    await tx.batch([sql`PRAGMA max_page_count = 1000000`]).catch(() => {});
    await tx.commit([sql`INSERT INTO purchase VALUES ('order')`]);
  });
  await expect(sold).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  expect(await inventory.get("cup")).toMatchObject({ onHand: 5, sold: 0 });
  expect(await database.read(sql`SELECT id FROM purchase`)).toEqual([]);
  await remove();
});
