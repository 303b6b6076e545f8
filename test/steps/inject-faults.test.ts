import { expect, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { claimOf, newRunId, record, running } from "../support/runs.ts";

const options = { ttl: 20_000, wait: 0 };

function collecting() {
  const points: string[] = [];
  const onPoint = (point: string) => {
    points.push(point);
  };
  const taken = () => points.splice(0).join(" ");
  return { onPoint, taken };
}

test("injectFaults calls its hook before and after each call that reaches a database, and for no other call", async () => {
  const { onPoint, taken } = collecting();
  const database = injectFaults(sqliteDatabase(":memory:"), onPoint);
  await database.batch([sql`CREATE TABLE t (a INTEGER)`]);
  expect(taken()).toBe("batch:before batch:after");
  await database.transaction(async (tx) => {
    await tx.batch([sql`INSERT INTO t VALUES (1)`]);
    await tx.commit([]);
  });
  expect(taken()).toBe("tx.batch:before tx.batch:after tx.commit:before tx.commit:after");
  expect(await database.read(sql`SELECT a FROM t`)).toEqual([{ a: 1n }]);
  expect(taken()).toBe("read:before read:after");
  expect(database.dialect.name).toBe("sqlite");
  await expect(database.batch([sql`NONSENSE`])).rejects.toMatchObject({ code: "STORE_REFUSED" });
  expect(taken()).toBe("batch:before batch:after");
  await database.close();
  expect(taken()).toBe("");
});

test("injectFaults calls its hook for the calls of a lock", async () => {
  const { onPoint, taken } = collecting();
  await using locks = injectFaults(memoryLocks(), onPoint);
  const lock = await locks.lock("a", options);
  lock.assertHeld();
  await lock.ensure(1_000);
  expect(await lock.unlock()).toBe("released");
  expect(taken()).toBe(
    "lock:before lock:after ensure:before ensure:after unlock:before unlock:after",
  );
  expect(await locks.tryLock("a", options)).toBeDefined();
  expect(await locks.tryLock("a", options)).toBeUndefined();
  taken();
  {
    await using set = await locks.lockAll(["b", "c"], options);
    expect(set.names).toEqual(["b", "c"]);
  }
  expect(taken()).toBe("lockAll:before lockAll:after unlock:before unlock:after");
});

test("an error of the hook stands for a lost request or a lost answer", async () => {
  const lost = new Error("lost");
  let at = "";
  const journal = injectFaults(memoryJournal(), async (point) => {
    if (point === at) throw lost;
  });
  const run = await running(journal);
  at = "append:before";
  await expect(journal.append(run, record("a"))).rejects.toBe(lost);
  expect((await journal.show(run.runId))?.records).toHaveLength(0);
  at = "append:after";
  await expect(journal.append(run, record("a"))).rejects.toBe(lost);
  expect((await journal.show(run.runId))?.records).toHaveLength(1);
  expect(journal.transact).toBeUndefined();
  expect(await journal.take(claimOf(newRunId()))).toEqual({ kind: "missing" });
});
