import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import {
  asBigInt,
  type Database,
  type Row,
  raw,
  type Sql,
  type SqlResult,
  sql,
} from "../../core/database/sql.ts";
import type { Journal } from "../../core/journal/journal.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqlServerJournal } from "../support/journal-under-test.ts";
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
} from "../support/runs.ts";

/** Of 200,000 runs, the share of each kind. */
const RUNS = 200_000;

/**
 * The most rows that a statement may examine. A claim looks at 64 lines and a few dozen runs. MySQL counts rows of temporary tables as
 * well: 1,129 for that claim, where MariaDB counts 700 at most.
 */
const MOST_ROWS = 1_500;

for (const server of [...inject("sqlServers"), ...inject("postgresServers")]) {
  describe(`recurring queries among 200,000 runs on ${server.name}`, () => {
    let database: Database;
    let close: () => Promise<void>;

    beforeAll(async () => {
      const underTest = await sqlServerJournal(server);
      database = underTest.openDatabase?.() as Database;
      await fill(database);
      close = async () => {
        await database.close();
        await underTest.close();
      };
    });

    afterAll(() => close());

    /** Calls the journal, and returns the statements that it sends. */
    const costs = async (work: (journal: Journal) => Promise<unknown>) => {
      const measured: Measured[] = [];
      await work(sqlJournal(measuring(database, measured)));
      expect(measured.length).toBeGreaterThan(0);
      return measured;
    };

    const expectBounded = async (work: (journal: Journal) => Promise<unknown>) => {
      for (const { statement, rows } of await costs(work)) {
        const text = statement.texts.join("?");
        expect(rows, text).toBeLessThanOrEqual(MOST_ROWS);
        expect(await isScan(database, statement), `a full scan: ${text}`).toBe(false);
      }
    };

    test("a poll without a due run reads few rows, though 50,000 runs of another version are due", async () => {
      const found = await costs((journal) => journal.claimDue(dueQuery("idle")));
      expect(found).toHaveLength(1);
      expect(found[0]?.rows).toBeLessThanOrEqual(4);
      const both = [1, 2].map((version) => ({ workflow: "served", version }));
      await expectBounded((journal) => journal.claimDue(dueQuery("served", { workflows: both })));
    });

    test("a claim from a backlog of one key with 1,000 other keys reads few rows", async () => {
      await expectBounded((journal) => journal.claimDue(dueQuery("backlog", { limit: 8 })));
      const journal = sqlJournal(database);
      const rate = { runs: 1, per: "1h" } as const;
      await journal.setLimits("default", { concurrency: 1_000, rate, ratePerKey: rate });
      await expectBounded((one) => one.claimDue(dueQuery("backlog", { limit: 8 })));
      await expectBounded((one) => one.claimDue(dueQuery("backlog", { limit: 8 })));
      await journal.setLimits("default", {});
    });

    test("the calls of a holder, signals, cancellations and purges read few rows", async () => {
      const journal = sqlJournal(database);
      const signal = { name: "a", dedupeId: "1", payload: "" };
      const parent = await running(journal);
      const child = { runId: parent.runId, signal: "child" };
      const run = await running(journal, { parent: child });
      await expectBounded((one) => running(one));
      await expectBounded((one) => one.append(run, record("a")));
      await expectBounded((one) => one.renew(run, 60_000));
      await expectBounded((one) => one.signal(run.runId, signal));
      await expectBounded((one) => one.cancel(run.runId));
      await expectBounded((one) => one.cancelChildren(parent.runId));
      await expectBounded((one) => one.finish(run, DONE));
      await expectBounded((one) => one.park(parent, { ...FOREVER, lock: "hot" }));
      await expectBounded((one) => one.wakeWaiting("hot"));
      await expectBounded((one) => one.show(run.runId));
      await expectBounded((one) => one.purge(20));
    });

    test("starts, takes, claims of children, retries and forks read few rows", async () => {
      const journal = sqlJournal(database);
      const { claim, ...parent } = await running(journal);
      await journal.append(parent, record("a"));
      const signal = { runId: parent.runId, signal: "child" };
      const newRun = () => claimOf(newRunId(), { workflow: "served", parent: signal });
      const keyed = newRun();
      await expectBounded((one) => one.start([newRun()], parent));
      await expectBounded((one) => one.startKeyed(keyed, { key: "first" }));
      await expectBounded((one) => one.startKeyed(newRun(), { key: "first" }));
      await expectBounded((one) => one.take({ runId: keyed.runId, owner: "one", ttl: 60_000 }));
      const query = dueQuery("served", { parent: parent.runId });
      await expectBounded(async (one) => expect(await one.claimDue(query)).toHaveLength(1));
      await journal.finish(parent, { ...DONE, status: "failed", compensated: "yes" });
      const mark = record("~fork", { kind: "value" });
      const fork = { runId: newRunId(), owner: "one", step: "b", keep: ["a"], supersede: [] };
      await expectBounded((one) => one.fork(parent, { ...fork, signals: [], mark }));
      await expectBounded((one) => one.reopen(parent, { supersede: ["a"], isRetry: true }));
    });

    test("a history of 5,000 records is continued, appended to and read by the page", async () => {
      const { claim, ...run } = await running(sqlJournal(database));
      const history = (part: number) => sql`
        INSERT INTO lockstep_step (run_id, part, step_key, epoch, kind, outcome, attempt, value, at)
        SELECT ${run.runId}, ${part}, CONCAT('s', n), ${run.epoch}, 'value', 'ok', 1, '1', n
        FROM (${hundredThousand}) AS numbers WHERE n < 5000`;
      await patiently(database, [history(1), analyze(database, "lockstep_step")]);
      await expectBounded((one) => one.append(run, record("next")));
      await expectBounded((one) => one.append(run, record("large", { value: "x".repeat(9_000) })));
      const { next } = await sqlJournal(database).records(run.runId, {});
      await expectBounded((one) => one.records(run.runId, { after: next }));
      await expectBounded((one) => one.show(run.runId, { limit: 100 }));
      await expectBounded((one) => one.values(run.runId, ["large"]));
      await expectBounded((one) => one.latest(run.runId, "large"));
      await sqlJournal(database).park(run, { ...FOREVER, wakeIn: 0 });
      const { epoch } = await claimed(sqlJournal(database), claim);
      const request = { part: 1, input: "1", received: [] };
      await expectBounded((one) => one.continueAsNew({ ...run, epoch }, request));
      await expectBounded((one) => claimed(one, claim));
    });

    test("a poll of the inboxes reads few rows, though 60,000 keys wait, and so does a turn with 20,000 messages", async () => {
      const { now } = database.dialect;
      const key = sql`CONCAT('key-', n)`;
      const waits = sql`
        INSERT INTO lockstep_entity (entity, entity_key, fence, claimed_by, held_until, seq, waits_since)
        SELECT CASE WHEN n < 30000 THEN 'account' WHEN n < 60000 THEN 'unserved' ELSE 'idle' END,
          ${key}, 1, '', 0, 2, CASE WHEN n < 60000 THEN ${now} - 1000 * n ELSE 0 END
        FROM (${hundredThousand}) AS numbers`;
      const messages = sql`
        INSERT INTO lockstep_message (
          entity, entity_key, operation_id, seq, handler, input, input_hash, at)
        SELECT entity, entity_key, 'one', 1, 'handler', '1', '', waits_since
        FROM lockstep_entity WHERE waits_since > 0`;
      const more = sql`
        INSERT INTO lockstep_message (
          entity, entity_key, operation_id, seq, handler, input, input_hash, at)
        SELECT 'account', 'key-29999', n, n, 'handler', '1', '', ${now}
        FROM (${hundredThousand}) AS numbers WHERE n < 20000`;
      const counted = analyze(database, "lockstep_entity, lockstep_message");
      await patiently(database, [waits, messages, more, counted]);
      const names = ["account", "idle", "unknown"];
      const longest = { entity: "account", key: "key-29999" };
      let found: readonly unknown[] = [];
      const polls = await costs(async ({ entities }) => {
        found = await entities.waiting(names, 16);
      });
      expect(found).toHaveLength(16);
      expect(found[0]).toEqual(longest);
      expect(polls.reduce((sum, { rows }) => sum + rows, 0)).toBeLessThanOrEqual(64);
      await expectBounded(({ entities }) => entities.waiting(names, 16));
      const message = { operationId: "new", handler: "handler", input: "1", inputHash: HASH };
      await expectBounded(({ entities }) => entities.visit(longest, { message }));
      await expectBounded(async ({ entities }) => {
        const { claimed: turn } = await entities.visit(longest, { ttl: 600_000 });
        if (!turn) throw new Error("the entity is not free");
        const answers = turn.messages.map((one) => ({
          ...{ message: one, outcome: "ok" as const, value: "1" },
        }));
        const change = { state: "1", answers, writes: [], keep: 600_000 };
        expect(await entities.commit(turn, change)).toHaveLength(32);
        await entities.release(turn);
      });
      expect(await sqlJournal(database).entities.waiting(names, 16)).not.toContainEqual(longest);
    });

    test("lists read few rows, by every filter and on every page", async () => {
      const [after = ""] = (await sqlJournal(database).list({ limit: 50 })).map((run) => run.runId);
      for (const query of [
        {},
        { workflow: "served" },
        { status: "failed" },
        { key: "key-7" },
        { queue: "bulk" },
        { after },
        { workflow: "backlog", status: "parked", after },
      ] as const) {
        await expectBounded((journal) => journal.list({ limit: 20, ...query }));
      }
    });
  });
}

const digits = sql`
  SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
  UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9`;
/** The numbers from 0 to 99,999. */
const hundredThousand = sql`
  SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d AS n
  FROM (${digits}) AS a, (${digits}) AS b, (${digits}) AS c, (${digits}) AS e, (${digits}) AS f`;

/** Inserts runs of several workflows: ended, sleeping and due ones. */
async function fill(database: Database): Promise<void> {
  const { now } = database.dialect;
  const [clock] = await database.read(sql`SELECT ${now} AS now`);
  // The kinds of runs mix in the order of their starts, however long the inserts take.
  const filledAt = asBigInt(clock?.now);
  const insert = (
    kind: string,
    {
      workflow,
      version,
      queue,
      key,
      status,
      dueAt,
      expiresAt,
      most,
    }: Readonly<Record<string, Sql>>,
  ) => sql`
    INSERT INTO lockstep_run (
      run_id, workflow, version, input, input_hash, queue, turn_key, status, epoch, owner, claimed_by,
      due_at, crashes, cancelled, signals, value, compensated, started_at, changed_at, expires_at)
    SELECT CONCAT(${kind}, n), ${workflow as Sql}, ${version as Sql}, '{}', '', ${queue ?? sql`'default'`}, ${key as Sql},
      ${status as Sql}, 1, 'a filler', '', ${dueAt as Sql}, 0, 0, 0, '{}', 0,
      ${filledAt} - 1000 * n,
      ${now}, ${expiresAt as Sql}
    FROM (${hundredThousand}) AS numbers WHERE n < ${most as Sql}`;
  const none = sql`NULL`;
  const one = sql`1`;
  const past = sql`${now} - 1000000 - n`;
  const parked = { version: one, key: sql`''`, status: sql`'parked'`, expiresAt: none };
  await patiently(database, [
    insert("ended", {
      ...parked,
      workflow: sql`'served'`,
      queue: sql`CASE WHEN n < 80000 THEN 'default' ELSE 'bulk' END`,
      status: sql`CASE WHEN n % 100 = 5 THEN 'failed' ELSE 'completed' END`,
      dueAt: none,
      expiresAt: sql`CASE WHEN n % 10 = 0 THEN 1 ELSE ${now} + 3600000000 END`,
      most: sql`100000`,
    }),
    insert("unserved", {
      ...parked,
      workflow: sql`'idle'`,
      version: sql`2`,
      dueAt: past,
      most: sql`50000`,
    }),
    insert("asleep", {
      ...parked,
      workflow: sql`'served'`,
      key: sql`CONCAT('key-', n % 1000)`,
      dueAt: sql`${now} + 3600000000 + n`,
      most: sql`30000`,
    }),
    insert("backlog", {
      ...parked,
      workflow: sql`'backlog'`,
      key: sql`CASE WHEN n < 19000 THEN 'busy' ELSE CONCAT('key-', n) END`,
      dueAt: past,
      most: sql`20000`,
    }),
    sql`
      INSERT INTO lockstep_backlog (queue, workflow, version, level, turn_key)
      SELECT DISTINCT queue, workflow, version, -priority, turn_key FROM lockstep_run`,
  ]);
  const [count] = await database.read(sql`SELECT COUNT(*) AS runs FROM lockstep_run`);
  expect(Number(count?.runs)).toBe(RUNS);
  await patiently(database, [analyze(database, "lockstep_run, lockstep_backlog")]);
}

function analyze({ dialect }: Database, tables: string): Sql {
  return raw(`ANALYZE ${dialect.name === "postgres" ? "" : "TABLE"} ${tables}`);
}

async function patiently(database: Database, statements: readonly Sql[]): Promise<void> {
  for (const statement of statements) {
    await database.batch([statement], AbortSignal.timeout(100_000));
  }
}

interface Measured {
  readonly statement: Sql;

  /** The number of rows that the statement read. */
  readonly rows: number;
}

/** Reads how many rows the session of MySQL, or the transaction of PostgreSQL, has read from tables and indexes so far. */
function rowsRead({ dialect }: Database): Sql {
  if (dialect.name !== "postgres") return sql`SHOW SESSION STATUS LIKE 'Handler_read%'`;
  return sql`
    SELECT relname AS "Variable_name", pg_stat_get_xact_tuples_returned(oid) AS "Value" FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')`;
}

/** The database, with a count of the rows that each statement reads. */
function measuring(database: Database, measured: Measured[]): Database {
  const counted = async (
    statements: readonly Sql[],
    send: (all: readonly Sql[]) => Promise<readonly SqlResult[]>,
  ) => {
    const status = rowsRead(database);
    const all = await send([status, ...statements.flatMap((one) => [one, status])]);
    statements.forEach((statement, i) => {
      const [before, after] = [all[2 * i], all[2 * i + 2]];
      measured.push({ statement, rows: total(after?.rows) - total(before?.rows) });
    });
    return all.filter((_, i) => i % 2 === 1);
  };
  const batch: Database["batch"] = (statements, ...rest) =>
    counted(statements, (all) => database.batch(all, ...rest));
  return {
    ...{ address: database.address, dialect: database.dialect, batch },
    read: async (statement, signal) => (await batch([statement], signal))[0]?.rows ?? [],
    transaction: (body, signal) =>
      database.transaction(
        (tx) =>
          body({
            batch: (statements) => counted(statements, (all) => tx.batch(all)),
            commit: (statements) => counted(statements, (all) => tx.commit(all)),
          }),
        signal,
      ),
    close: async () => {},
    [Symbol.asyncDispose]: async () => {},
  };
}

function total(rows: readonly Row[] = []): number {
  return rows
    .filter((row) => !String(row.Variable_name).includes("rnd_deleted"))
    .reduce((sum, row) => sum + Number(row.Value), 0);
}

/** Whether the plan reads a whole table of runs, lines, records or signals, or a whole index of one. */
async function isScan(database: Database, statement: Sql): Promise<boolean> {
  const [plan] = await database.batch([sql`EXPLAIN ${statement}`]);
  if (database.dialect.name === "postgres") {
    // A line of the plan: "->  Seq Scan on lockstep_run r  (cost=0.00..9126.00 rows=200000 width=8)".
    return (plan?.rows ?? []).some((line) => {
      const found = /Seq Scan on lockstep_.* rows=(\d+)/.exec(String(line["QUERY PLAN"]));
      return Number(found?.[1] ?? 0) > MOST_ROWS;
    });
  }
  const names = /^(lockstep_\w+|[rs]|child|parent)$/;
  return (plan?.rows ?? []).some(
    ({ table, type, rows }) =>
      names.test(String(table)) && /ALL|index$/.test(String(type)) && Number(rows) > MOST_ROWS,
  );
}
