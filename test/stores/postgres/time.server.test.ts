import { expect, inject, test } from "vitest";
import { sql } from "../../../core/database/sql.ts";
import { sqlLocks } from "../../../core/stores/sql/locks.ts";
import { migrate } from "../../../core/stores/sql/migrate.ts";
import { temporaryDatabase } from "../../support/under-test.ts";
import { pause, until } from "../../support/until.ts";

for (const server of inject("postgresServers")) {
  test("a holder whose claim waited for the lock's row believes to hold the lock no longer than the row says", async () => {
    const { open, drop } = await temporaryDatabase(server);
    const database = open();
    await migrate(database);
    const former = sqlLocks(open(), { closeDatabase: true });
    const locks = sqlLocks(open(), { closeDatabase: true });
    await former.lock("job", { ttl: 60_000, wait: 0, renew: false });
    await database.batch([
      sql`UPDATE lockstep_lock SET expires_at = 0, free_at = 0 WHERE name = 'job'`,
    ]);
    const isLocked = Promise.withResolvers<void>();
    const locking = database.transaction(async (tx) => {
      await tx.batch([sql`SELECT name FROM lockstep_lock WHERE name = 'job' FOR UPDATE`]);
      isLocked.resolve();
      // The wait counts from the arrival of the claim.
      await until(async () => {
        const [row] = await database.read(sql`
          SELECT COUNT(*) AS n FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`);
        return Number(row?.n) > 0;
      });
      await pause(1_000);
      await tx.commit([]);
    });
    await isLocked.promise;
    const lock = await locks.lock("job", { ttl: 60_000, wait: 60_000, renew: false });
    await locking;
    const [row] = await database.read(sql`
      SELECT expires_at - CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS expires_in
      FROM lockstep_lock WHERE name = 'job'`);
    const expiresIn = Number(row?.expires_in) / 1_000;
    // The wait has cost the holder a part of its ttl.
    expect(expiresIn).toBeLessThan(60_000 - 500);
    lock.assertHeld();
    expect(() => lock.assertHeld(expiresIn + 1)).toThrow();
    expect(await lock.unlock()).toBe("released");
    await Promise.all([former.close(), locks.close()]);
    await database.close();
    await drop();
  });
}
