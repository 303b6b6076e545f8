import { afterEach, describe, expect, inject, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { type Database, sql } from "../../../core/database/sql.ts";
import { createRuntime } from "../../../core/steps/runtime.ts";
import { workflow } from "../../../core/steps/workflow.ts";
import { sqlJournal } from "../../../core/stores/sql/journal/index.ts";
import { sqlLocks } from "../../../core/stores/sql/locks.ts";
import { migrate } from "../../../core/stores/sql/migrate.ts";
import { temporaryDatabase } from "../../support/under-test.ts";
import { pause, until } from "../../support/until.ts";
import { wakeUpsOf } from "../../support/wake-ups.ts";

const quick = workflow({ name: "quick", version: 1, input: z.string() }, async () => {});

afterEach(() => {
  vi.useRealTimers();
});

describe.each(inject("postgresServers"))("on $name", (server) => {
  /** Makes a database with the tables, and opens clients of it. */
  const makeDatabase = async () => {
    const { open, drop } = await temporaryDatabase(server);
    const databases: Database[] = [];
    const openOne = () => {
      const database = open();
      databases.push(database);
      return database;
    };
    const admin = openOne();
    await migrate(admin);
    onTestFinished(async () => {
      for (const database of databases) await database.close();
      await drop();
    });
    const count = async (where: ReturnType<typeof sql>) => {
      const [row] = await admin.read(sql`SELECT COUNT(*) AS n FROM ${where}`);
      return Number(row?.n);
    };
    return {
      admin,
      open: openOne,
      listening: () => count(sql`${SESSIONS} AND query LIKE 'LISTEN%'`),
      sessions: () => count(SESSIONS),
      awaited: () => count(sql`lockstep_lock WHERE awaited = 1`),
    };
  };

  test("a waiter gets the lock at its release without reading it from time to time", async () => {
    const { open, listening, awaited } = await makeDatabase();
    const [ours, theirs] = [sqlLocks(open()), sqlLocks(open())];
    const lock = await ours.lock("a", { ttl: 600_000, wait: 600_000 });
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const waiting = theirs.lock("a", { ttl: 600_000, wait: 600_000 });
    // Until the waiter listens and has marked the lock, it waits for the first pauses of its polls.
    while ((await listening()) + (await awaited()) < 2) await vi.advanceTimersByTimeAsync(10);
    expect(await lock.unlock()).toBe("released");
    let isOver = false;
    void waiting.then(() => {
      isOver = true;
    });
    // Less than the second after which the waiter would look by itself; each millisecond takes as long as a request.
    for (let i = 0; i < 900 && !isOver; i += 1) {
      await vi.advanceTimersByTimeAsync(1);
      await listening();
    }
    expect(isOver).toBe(true);
    expect(await (await waiting).unlock()).toBe("released");
  });

  test("whenFree resolves at the release of a lock, also when the connection that listens was ended meanwhile", async () => {
    const { admin, open, listening, awaited } = await makeDatabase();
    const [ours, theirs] = [sqlLocks(open()), sqlLocks(open())];
    const lock = await ours.lock("a", { ttl: 600_000, wait: 600_000 });
    const free = theirs.whenFree?.("a", new AbortController().signal);
    const isWatched = async () => (await listening()) === 1 && (await awaited()) === 1;
    await until(isWatched);
    const [ended] = await admin.read(sql`
      SELECT pid, pg_terminate_backend(pid) FROM ${SESSIONS} AND query LIKE 'LISTEN%'`);
    const isNew = sql`${SESSIONS} AND query LIKE 'LISTEN%' AND pid <> ${Number(ended?.pid)}`;
    await until(async () => (await admin.read(sql`SELECT pid FROM ${isNew}`)).length === 1);
    await lock.unlock();
    await free;
  });

  test("only a waiter makes a connection that listens, and close ends it", async () => {
    const { open, listening, sessions, awaited } = await makeDatabase();
    const database = open();
    const [ours, theirs] = [sqlLocks(database), sqlLocks(database)];
    const lock = await ours.lock("a", { ttl: 600_000, wait: 600_000 });
    await lock.unlock();
    expect(await listening()).toBe(0);
    const again = await ours.lock("a", { ttl: 600_000, wait: 600_000 });
    const waiting = theirs.lock("a", { ttl: 600_000, wait: 600_000 });
    await until(async () => (await listening()) === 1 && (await awaited()) === 1);
    await again.unlock();
    await (await waiting).unlock();
    expect(await listening()).toBe(1);
    await database.close();
    // The one that asks is left.
    await until(async () => (await sessions()) === 0);
  });

  test("a lock is marked as awaited, and its release published, only while a waiter listens", async () => {
    const { admin, open, awaited } = await makeDatabase();
    const [ours, theirs] = [sqlLocks(open()), sqlLocks(open())];
    const lock = await ours.lock("a", { ttl: 600_000, wait: 600_000 });
    expect(await theirs.tryLock("a", { ttl: 600_000 })).toBeUndefined();
    expect(await awaited()).toBe(0);
    const heard: (string | undefined)[] = [];
    admin.notices?.listen("lockstep_released", (name) => heard.push(name));
    await until(() => heard.length === 1);
    await lock.unlock();
    const next = await ours.lock("b", { ttl: 600_000, wait: 600_000 });
    await admin.batch([sql`UPDATE lockstep_lock SET awaited = 1`]);
    await next.unlock();
    await until(() => heard.includes("b"));
    expect(heard).toEqual([undefined, "b"]);
  });

  test("runtimes tell each other of starts, signals and cancellations, also after the connection was ended", async () => {
    const { admin, open } = await makeDatabase();
    const openRuntime = () => createRuntime({ journal: sqlJournal(open()), workflows: [quick] });
    const [ours, theirs] = [openRuntime(), openRuntime()];
    const woken = await wakeUpsOf(theirs);
    await woken.by(() => ours.start(quick, "x", { id: "a" }));
    await woken.by(() => ours.signal("a", "go", 1, { dedupeId: "1" }));
    await woken.by(() =>
      admin.read(sql`SELECT pg_terminate_backend(pid) FROM ${SESSIONS} AND query LIKE 'LISTEN%'`),
    );
    await woken.by(() => ours.cancel("a"));
  });

  test("the write that makes a run due tells the others itself", async () => {
    const { admin, open } = await makeDatabase();
    const journal = sqlJournal(open());
    const runtime = createRuntime({ journal, workflows: [quick] });
    const heard: (string | undefined)[] = [];
    admin.notices?.listen("lockstep_due", (client) => heard.push(client));
    await until(() => heard.length === 1);
    // Without a listener in its process, only the write itself can tell.
    journal.dueListeners.clear();
    await runtime.start(quick, "x", { id: "a" });
    await until(() => heard.length === 2);
    // At most one write in 20 ms has a notice.
    await pause(100);
    await runtime.start(quick, "x", { id: "b" });
    await until(() => heard.length === 3);
  });
});

/** The sessions of clients in this database, except the asking one. */
const SESSIONS = sql`
  pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type = 'client backend'`;
