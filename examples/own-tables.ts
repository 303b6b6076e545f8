import { claimFence, list, sql } from "lockstep/database";
import { openMysql } from "lockstep/mysql";

await using shop = await openMysql({
  host: "127.0.0.1",
  port: 3306,
  user: "root",
  database: "shop",
});
const { database, locks } = shop;

await locks.withLock("seats/hall-1", { ttl: "10s", wait: "5s" }, (lock) =>
  database.transaction(async (tx) => {
    await claimFence(database, tx, lock.fence); // a late holder ends here, with a FencedOutError
    const [free] = await tx.batch([sql`SELECT id FROM seat WHERE taken = 0 ORDER BY id LIMIT 2`]);
    const ids = free?.rows.map(({ id }) => Number(id)) ?? [];
    await tx.commit([sql`UPDATE seat SET taken = 1 WHERE id IN (${list(ids)})`]);
  }),
);
