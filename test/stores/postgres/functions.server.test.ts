import pg from "pg";
import { expect, inject, test } from "vitest";
import { z } from "zod";
import { asBigInt, asNumber, asText, raw, type Sql, sql } from "../../../core/database/sql.ts";
import { stockLock } from "../../../core/inventory/inventory.ts";
import { createRuntime } from "../../../core/steps/runtime.ts";
import { workflow } from "../../../core/steps/workflow.ts";
import { openPostgres } from "../../../core/stores/postgres/index.ts";
import { migrate } from "../../../core/stores/sql/migrate.ts";
import { known } from "../../support/known.ts";
import { dueQuery } from "../../support/runs.ts";
import { temporaryDatabase } from "../../support/under-test.ts";

const LOCK = sql`
  INSERT INTO lockstep_lock (name, owner, expires_at, free_at)
  SELECT 'lock' || i, 'me', 9223372036854775807, 0 FROM generate_series(1, 5) AS i`;

const STOCK = sql`
  INSERT INTO lockstep_stock (sku, on_hand, reserved, sold, supplied, seq, changed_by)
  SELECT 'sku' || i, 9, 0, 0, 9, 0, '' FROM generate_series(1, 5) AS i`;

const LEDGER = sql`
  INSERT INTO lockstep_ledger (sku, seq, operation_id, kind, quantity, outcome, on_hand, at)
  SELECT 'other', i, 'other' || i, 'decrement', 1, 'applied', 9, 0 FROM generate_series(1, 5) AS i`;

const CLAIM = sql`
  INSERT INTO lockstep_claim (resource, generation, token, owner)
  SELECT 'sku/sku' || i, 0, 1, 'me' FROM generate_series(1, 5) AS i`;

const RUN = sql`
  INSERT INTO lockstep_run (
    run_id, workflow, version, input, input_hash, status, epoch, owner, claimed_by, crashes, cancelled, signals, started_at,
    changed_at)
  SELECT 'run' || i, 'w', 1, '', '', 'running', 1, 'me', '', 0, 0, 0, 0, 0 FROM generate_series(1, 5) AS i`;

function append(key: string, last: bigint | null): Sql {
  return sql`
    SELECT lockstep_append(
      'run1', 1, ${last}, ${key}, 'step', 'ok', 1, '1', NULL, NULL, NULL, NULL, NULL, NULL) AS value`;
}

const CALLS: readonly (readonly [name: string, call: Sql])[] = [
  [
    "lockstep_decrement",
    sql`SELECT lockstep_decrement('sku1', 1, 'sale', decode('00', 'hex'), 'sku/sku1', 0, 1, 'me') AS value`,
  ],
  ["lockstep_append", append("step", null)],
  ["lockstep_read_state", sql`SELECT run_epoch AS value FROM lockstep_read_state('run1', 'step')`],
  ["lockstep_drop", sql`SELECT CAST(lockstep_drop('lock1', 'me') AS INTEGER) AS value`],
];

const CHANGES = ["lockstep_append", "lockstep_read_state"].flatMap((name) => [
  { name, how: "is missing", change: `DROP FUNCTION ${name}` },
  { name, how: "may not be executed", change: `REVOKE EXECUTE ON FUNCTION ${name} FROM PUBLIC` },
]);

for (const server of inject("postgresServers")) {
  test(`a migration stays in the schema of the tables, whatever schema comes first by now, on ${server.name}`, async () => {
    const { open, options, drop } = await temporaryDatabase(server);
    await using admin = open();
    await migrate(admin);
    const schema = raw(`CREATE SCHEMA "${options.user}"`);
    await admin.batch([schema, sql`DELETE FROM lockstep_migration WHERE version = 13`]);
    await using database = open();
    expect(await migrate(database)).toHaveLength(1);
    const found = await database.read(sql`
      SELECT DISTINCT nspname AS schema FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
      WHERE relname LIKE 'lockstep_%'`);
    expect(found.map(({ schema }) => schema)).toEqual(["public"]);
    await drop();
  });

  test(`stock is changed once whatever parsers the application has set, on ${server.name}`, async () => {
    const { open, options, drop } = await temporaryDatabase(server);
    await migrate(open());
    const text = (value: string) => `"${value}"`;
    const oids = [17, 20, 21, 23, 25];
    const parsers = oids.map((oid) => [oid, pg.types.getTypeParser(oid)] as const);
    for (const oid of oids) pg.types.setTypeParser(oid, text);
    try {
      await using shop = await openPostgres(options);
      const operation = { sku: "cup", quantity: 2, operationId: "sale" };
      await shop.inventory.set({ sku: "cup", quantity: 5, operationId: "set" });
      expect(await shop.inventory.decrement(operation)).toMatchObject({ remaining: 3 });
      expect(await shop.inventory.decrement(operation)).toMatchObject({ replayed: true });
    } finally {
      for (const [oid, parser] of parsers) pg.types.setTypeParser(oid, parser);
    }
    await drop();
  });

  test.each(["UNIQUE", "REFERENCES other (id)"])(
    `a constraint that the COMMIT checks fails the step alone: %s, on ${server.name}`,
    async (constraint) => {
      const { open, options, drop } = await temporaryDatabase(server);
      await using admin = open();
      await migrate(admin);
      await admin.batch([
        raw("CREATE TABLE other (id INTEGER PRIMARY KEY)"),
        raw(`CREATE TABLE mine (id INTEGER ${constraint} DEFERRABLE INITIALLY DEFERRED)`),
      ]);
      await using store = await openPostgres(options);
      let bodies = 0;
      const row = sql`INSERT INTO mine (id) VALUES (1)`;
      const put = workflow({ name: "put", version: 1, input: z.null() }, async (ctx) => {
        const retry = { attempts: 2, base: 1 };
        return ctx.step.tx("put", { lock: "l", retry }, async ({ tx }) => {
          bodies += 1;
          await tx.batch([row, row]);
        });
      });
      const outcome = await createRuntime(store).execute(put, null, { id: "a" });
      expect(outcome).toMatchObject({ status: "failed" });
      expect(bodies).toBe(2);
      await drop();
    },
  );

  test.each(CHANGES)(
    `no step is executed by a process for which the function $name $how, on ${server.name}`,
    async ({ change }) => {
      const { open, options, drop } = await temporaryDatabase(server);
      const user = `${options.database}_app`;
      await using admin = open();
      await migrate(admin);
      const rights = `
        CREATE ROLE ${user} LOGIN;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${user}`;
      await admin.batch([raw(rights), raw(change)]);
      await using store = await openPostgres({ ...options, user });
      const { journal } = store;
      const runtime = createRuntime(store);
      let charged = 0;
      const order = workflow({ name: "order", version: 1, input: z.null() }, (ctx) =>
        ctx.step("charge", async () => {
          charged += 1;
        }),
      );
      await runtime.start(order, null, { id: "started" });
      const refused = { code: "STORE_REFUSED" };
      await expect(runtime.execute(order, null, { id: "new" })).rejects.toMatchObject(refused);
      await expect(runtime.execute(order, null, { id: "started" })).rejects.toMatchObject(refused);
      await expect(runtime.resume("started")).rejects.toMatchObject(refused);
      await expect(journal.claimDue(dueQuery("order"))).rejects.toMatchObject(refused);
      expect(charged).toBe(0);
      // No claim has remained.
      expect((await journal.list({})).map(({ status }) => status)).toEqual(["parked"]);
      await drop();
    },
  );

  // A session keeps the plan, and the table may have 100,000 rows before PostgreSQL makes another one.
  test.each(CALLS)(`%s scans no table, however small, on ${server.name}`, async (_, call) => {
    const { open, drop } = await temporaryDatabase(server);
    await using filler = open();
    await migrate(filler);
    await filler.batch([LOCK, STOCK, LEDGER, CLAIM, RUN, sql`ANALYZE`]);
    await using database = open();
    const scanned = await database.transaction(async (tx) => {
      const [answer] = await tx.batch([call]);
      expect(asNumber(answer?.rows[0]?.value)).toBeGreaterThan(0);
      const [scans] = await tx.batch([
        sql`SELECT relname FROM pg_stat_xact_user_tables WHERE seq_scan > 0 ORDER BY relname`,
      ]);
      return scans?.rows.map((row) => asText(row.relname));
    });
    expect(scanned).toEqual([]);
    await drop();
  });

  test.each(["read", "given"])(
    `a record is later than the last one, whose time is %s, although the clock was stepped back, on ${server.name}`,
    async (how) => {
      const { open, drop } = await temporaryDatabase(server);
      await using database = open();
      await migrate(database);
      const last = 2n ** 60n;
      await database.batch([
        RUN,
        sql`
          INSERT INTO lockstep_step (run_id, part, step_key, epoch, kind, outcome, attempt, at)
          VALUES ('run1', 1, 'first', 1, 'step', 'ok', 1, ${last})`,
      ]);
      const [answer] = await database.batch([append("second", how === "given" ? last : null)]);
      expect(asBigInt(answer?.rows[0]?.value)).toBe(last + 1n);
      await drop();
    },
  );

  test(`a sale ignores columns that the user has added, on ${server.name}`, async () => {
    const { open, options, drop } = await temporaryDatabase(server);
    await using admin = open();
    await migrate(admin);
    await admin.batch([
      raw("ALTER TABLE lockstep_stock ADD COLUMN units BIGINT NOT NULL DEFAULT 3"),
      raw("ALTER TABLE lockstep_ledger ADD COLUMN operation TEXT"),
    ]);
    await using store = await openPostgres(options);
    await using lock = await known(() =>
      store.locks.lock(stockLock("cup"), { ttl: 60_000, wait: 60_000 }),
    );
    await store.inventory.set({ sku: "cup", quantity: 9, operationId: "count" });
    const sale = { sku: "cup", quantity: 1, operationId: "sale", fence: lock.fence };
    const sold = { outcome: "applied", remaining: 8 };
    expect(await store.inventory.decrement(sale)).toEqual({ ...sold, replayed: false });
    expect(await store.inventory.decrement(sale)).toEqual({ ...sold, replayed: true });
    await lock.unlock();
    await drop();
  });

  test(`no function depends on a table, which could then not be dropped, on ${server.name}`, async () => {
    const { open, drop } = await temporaryDatabase(server);
    await using database = open();
    await migrate(database);
    const tables = await database.read(
      sql`SELECT tablename FROM pg_tables WHERE tablename LIKE 'lockstep_%'`,
    );
    const names = tables.map((row) => asText(row.tablename));
    expect(names).toContain("lockstep_claim");
    for (const name of names) await database.batch([raw(`DROP TABLE ${name}`)]);
    await drop();
  });
}
