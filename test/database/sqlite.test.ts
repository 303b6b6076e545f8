import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { openSqlite } from "../../core/database/sqlite.ts";
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
  const counting: Promise<unknown>[] = [];
  await database.transaction(async (tx) => {
    await tx.packet([sql`INSERT INTO t VALUES (1)`]);
    counting.push(database.read(sql`SELECT COUNT(*) AS n FROM t`));
    await pause(20);
  });
  expect(await counting[0]).toMatchObject([{ n: 0n }]);
  await database.close();
});
