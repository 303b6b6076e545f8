import { expect, inject, test } from "vitest";
import { openMysql } from "../../core/database/mysql.ts";
import { type Database, sql } from "../../core/database/sql.ts";
import { openSqlite } from "../../core/database/sqlite.ts";
import { migrate } from "../../infra/migrate.ts";
import { temporaryDatabase, temporaryFile } from "../support/under-test.ts";

async function expectOnce(open: () => Database): Promise<void> {
  const clients = Array.from({ length: 5 }, open);
  const applied = await Promise.all(clients.map((client) => migrate(client)));
  expect(applied.flat().sort()).toEqual([
    "0001-locks.sql",
    "0002-inventory.sql",
    "0003-steps.sql",
    "0004-claim-owners.sql",
    "0005-orders.sql",
  ]);
  expect(await migrate(clients[0] as Database)).toEqual([]);
  const versions = await clients[0]?.read(
    sql`SELECT version FROM lockstep_migration ORDER BY version`,
  );
  expect(versions?.map(({ version }) => Number(version))).toEqual([0, 1, 2, 3, 4, 5]);
  for (const client of clients) await client.close();
}

test("processes that start at once apply each migration once on sqlite", async () => {
  const { file, remove } = await temporaryFile();
  await expectOnce(() => openSqlite(file));
  await remove();
});

for (const server of inject("sqlServers")) {
  test(`a migration that was cut off is done again on ${server.name}`, async () => {
    const { options, drop } = await temporaryDatabase(server);
    await using database = openMysql(options);
    const applied = await migrate(database);
    await database.packet([sql`DELETE FROM lockstep_migration WHERE version > 0`]);
    expect(await migrate(database)).toEqual(applied);
    await drop();
  });

  test(`processes that start at once apply each migration once on ${server.name}`, async () => {
    const { options, drop } = await temporaryDatabase(server);
    await expectOnce(() => openMysql(options));
    await drop();
  });
}
