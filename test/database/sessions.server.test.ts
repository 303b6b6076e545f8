import { describe, expect, inject, onTestFinished, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { temporaryDatabase } from "../support/under-test.ts";

for (const server of [...inject("sqlServers"), ...inject("postgresServers")]) {
  describe(`sessions on ${server.name}`, () => {
    const isPostgres = server.url.startsWith("postgres:");

    const prepare = async () => {
      const { open, drop } = await temporaryDatabase(server);
      const [database, other] = [open(), open()];
      await database.batch([sql`CREATE TABLE seat (id INT PRIMARY KEY, taken INT NOT NULL)`]);
      await database.batch([sql`INSERT INTO seat VALUES (1, 0)`]);
      onTestFinished(async () => {
        await Promise.all([database.close(), other.close()]);
        await drop();
      });
      return { database, other };
    };

    const take = sql`UPDATE seat SET taken = taken + 1 WHERE id = 1`;

    test("of a server that has become read-only are replaced after the first refusal", async () => {
      const { database } = await prepare();
      const readOnly = isPostgres
        ? sql`SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`
        : sql`SET SESSION TRANSACTION READ ONLY`;
      const inUse = Promise.withResolvers<void>();
      const refused = Promise.withResolvers<void>();
      const busy = database.transaction(async (tx) => {
        await tx.batch([readOnly]);
        inUse.resolve();
        await refused.promise;
        await tx.commit([]);
      });
      await inUse.promise;
      // The refusal of a younger connection would be that of the server which the address means.
      const pause = isPostgres ? sql`SELECT pg_sleep(1.2)` : sql`SELECT SLEEP(1.2)`;
      await Promise.all([1, 2, 3].map(() => database.batch([readOnly, pause])));
      await expect(database.batch([take])).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      refused.resolve();
      await busy;
      await database.batch([take]);
      await database.transaction((tx) => tx.commit([take]));
      expect(await database.read(sql`SELECT taken FROM seat`)).toMatchObject([{ taken: 2 }]);
    });

    test("tell why a transaction was repeated until its limit", async () => {
      const { database, other } = await prepare();
      await other.transaction(async (tx) => {
        await tx.batch([take]);
        // The first attempt waits two seconds for the row.
        const waiting = database.transaction(
          (again) => again.batch([take]),
          AbortSignal.timeout(6_000),
        );
        await expect(waiting).rejects.toMatchObject({
          code: "STORE_UNAVAILABLE",
          message: expect.stringMatching(/lock (?:wait )?timeout/i),
        });
      });
    });

    test.skipIf(isPostgres)("raise the generation with safe updates", async () => {
      const { database } = await prepare();
      await migrate(database);
      await database.batch([sql`SET SESSION sql_safe_updates = 1`]);
      await using locks = sqlLocks(database);
      expect(await locks.raiseGeneration()).toBe(1);
    });
  });
}
