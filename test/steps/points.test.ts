import { expect, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { openSqlite } from "../../core/database/sqlite.ts";
import { memoryJournal } from "../../core/journal/memory.ts";
import { pointed } from "../../core/steps/points.ts";
import { memoryStore } from "../../core/stores/memory/index.ts";
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

test("there is a point before and after each call that reaches a database, and none for the rest", async () => {
  const { onPoint, taken } = collecting();
  const database = pointed(openSqlite(":memory:"), onPoint);
  await database.packet([sql`CREATE TABLE t (a INTEGER)`]);
  expect(taken()).toBe("packet:before packet:after");
  await database.transaction(async (tx) => {
    await tx.packet([sql`INSERT INTO t VALUES (1)`]);
    await tx.commit([]);
  });
  expect(taken()).toBe("tx.packet:before tx.packet:after tx.commit:before tx.commit:after");
  expect(await database.read(sql`SELECT a FROM t`)).toEqual([{ a: 1n }]);
  expect(taken()).toBe("read:before read:after");
  expect(database.dialect.name).toBe("sqlite");
  await expect(database.packet([sql`NONSENSE`])).rejects.toMatchObject({ code: "STORE_REFUSED" });
  expect(taken()).toBe("packet:before packet:after");
  await database.close();
  expect(taken()).toBe("");
});

test("a lock that came over points has them for what is done with it", async () => {
  const { onPoint, taken } = collecting();
  await using locks = pointed(memoryStore(), onPoint);
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

test("what a point throws stands for a lost request, or a lost answer", async () => {
  const lost = new Error("lost");
  let at = "";
  const journal = pointed(memoryJournal(), async (point) => {
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
