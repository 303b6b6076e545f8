import { claimFence, sql } from "lockstep/database";
import { openPostgres } from "lockstep/postgres";

await using shop = await openPostgres({
  host: "127.0.0.1",
  port: 5432,
  user: "shop",
  database: "shop",
});
const { database, locks } = shop;

await locks.withLock("nightly-count", { ttl: "10s", wait: "5s" }, async (lock) => {
  // Before the first read: shuts out every earlier holder.
  await database.transaction(async (tx) => {
    await claimFence(database, tx, lock.fence);
    await tx.commit([]);
  }, lock.signal);

  const units = await count(lock.signal); // may take hours: the lock is renewed

  // With the write: refuses this holder if it froze and another one has come since.
  await database.transaction(async (tx) => {
    await claimFence(database, tx, lock.fence);
    await tx.commit([sql`UPDATE report SET units = ${units} WHERE name = 'stock'`]);
  }, lock.signal);
});

/** Your work, which ends when the signal aborts. */
async function count(signal: AbortSignal) {
  const rows = await database.read(sql`SELECT on_hand FROM stock`, signal);
  return rows.reduce((sum, { on_hand }) => sum + Number(on_hand), 0);
}
