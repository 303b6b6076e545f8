import { DatabaseSync } from "node:sqlite";
import { expect, inject, test } from "vitest";
import { type Database, raw, sql } from "../../core/database/sql.ts";
import { mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { mysqlDialect } from "../../core/stores/mysql/dialect.ts";
import { postgresDialect } from "../../core/stores/postgres/dialect.ts";
import { migrations } from "../../core/stores/postgres/migrations.ts";
import { migrate, migrationStatus } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { sqliteDialect } from "../../core/stores/sqlite/dialect.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { temporaryDatabase, temporaryFile } from "../support/under-test.ts";

async function expectOnce(open: () => Database): Promise<void> {
  const clients = Array.from({ length: 5 }, open);
  const applied = await Promise.all(clients.map((client) => migrate(client)));
  expect(applied.flat().sort()).toEqual([
    "0001-locks",
    "0002-inventory",
    "0003-steps",
    "0004-claim-owners",
    "0005-orders",
    "0006-entities",
    "0007-starts",
    "0008-steps-in-progress",
    "0009-waiting-entities",
    "0010-takeovers",
    "0011-awaited-locks",
    "0012-lock-functions",
    "0013-runs-of-queues",
    "0014-functions",
  ]);
  expect(await migrate(clients[0] as Database)).toEqual([]);
  const versions = await clients[0]?.read(
    sql`SELECT version FROM lockstep_migration ORDER BY version`,
  );
  expect(versions?.map(({ version }) => Number(version))).toEqual([
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
  ]);
  for (const client of clients) await client.close();
}

test.each([sqliteDialect, mysqlDialect, postgresDialect])(
  "the dialect of $name counts its migrations",
  async ({ migrations, migrationCount }) => {
    expect(migrationCount).toBe((await migrations()).length);
  },
);

test("a current file is opened while another process writes to it", async () => {
  const { file, remove } = await temporaryFile();
  await (await openSqlite(file)).close();
  const other = new DatabaseSync(file);
  other.exec("BEGIN IMMEDIATE");
  await using opened = await openSqlite(file);
  expect(await opened.inventory.get("teapot")).toBeUndefined();
  other.close();
  await remove();
});

test("concurrent processes apply each migration once on sqlite", async () => {
  const { file, remove } = await temporaryFile();
  await expectOnce(() => sqliteDatabase(file));
  await remove();
});

for (const server of inject("sqlServers")) {
  test(`an interrupted migration is repeated on ${server.name}`, async () => {
    const { options, drop } = await temporaryDatabase(server);
    await using database = mysqlDatabase(options);
    const applied = await migrate(database);
    await database.batch([sql`DELETE FROM lockstep_migration WHERE version > 0`]);
    expect(await migrate(database)).toEqual(applied);
    await drop();
  });
}

const withFunctions = migrations.filter(({ script }) => script.includes(" FUNCTION "));
const ofFunctions = withFunctions.map(({ name }) => name);
const functions = withFunctions.flatMap(({ script }) =>
  [...script.matchAll(/ FUNCTION (\w+)\(/g)].map(([, name = ""]) => name),
);

for (const server of inject("postgresServers")) {
  test.each(functions)(`a missing function is made again: %s on ${server.name}`, async (name) => {
    const { open, drop } = await temporaryDatabase(server);
    await using database = open();
    await migrate(database);
    await database.batch([raw(`DROP FUNCTION ${name}`)]);
    expect((await migrationStatus(database)).pending).toEqual(ofFunctions);
    expect(await migrate(database)).toEqual(ofFunctions);
    expect((await migrationStatus(database)).pending).toEqual([]);
    expect(await migrate(database)).toEqual([]);
    await drop();
  });

  test(`tables of version 13 that were copied without their functions are migrated on ${server.name}`, async () => {
    const { open, drop } = await temporaryDatabase(server);
    await using database = open();
    await migrate(database);
    await database.batch([
      raw(`DROP FUNCTION ${functions.join(", ")}`),
      sql`DELETE FROM lockstep_migration WHERE version = 14`,
    ]);
    expect(await migrate(database)).toEqual(ofFunctions);
    expect(await migrate(database)).toEqual([]);
    await drop();
  });

  test(`processes that make missing functions again at once do so once on ${server.name}`, async () => {
    const { open, drop } = await temporaryDatabase(server);
    const clients = Array.from({ length: 5 }, () => open());
    await migrate(clients[0] as Database);
    await clients[0]?.batch([raw(`DROP FUNCTION ${functions.join(", ")}`)]);
    const applied = await Promise.all(clients.map((client) => migrate(client)));
    expect(applied.flat()).toEqual(ofFunctions);
    for (const client of clients) await client.close();
    await drop();
  });
}

test.each(withFunctions)(
  "the migration $name makes functions alone, so that it may be repeated",
  ({ script }) => {
    const statements = script.replaceAll(/^ *--.*$|\$\$[^$]*\$\$/gm, "").split(";");
    for (const statement of statements.filter((one) => one.trim())) {
      expect(statement.trim()).toMatch(/^CREATE OR REPLACE FUNCTION lockstep_/);
    }
  },
);

for (const server of [...inject("sqlServers"), ...inject("postgresServers")]) {
  test(`concurrent processes apply each migration once on ${server.name}`, {
    repeats: 10,
  }, async () => {
    const { open, drop } = await temporaryDatabase(server);
    await expectOnce(() => open());
    await drop();
  });
}
