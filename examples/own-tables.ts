import { claimFence, sql } from "lockstep/database";
import { openMysql } from "lockstep/mysql";

await using shop = await openMysql({
  host: "127.0.0.1",
  port: 3306,
  user: "root",
  database: "shop",
});
const { database, locks } = shop;

/** Takes two seats side by side. An order that comes twice keeps its seats; [] when there are none left. */
function takePair(order: string): Promise<readonly number[]> {
  return locks.withLock("seats/hall-1", { ttl: "10s", wait: "5s" }, (lock) =>
    database.transaction(async (tx) => {
      await claimFence(database, tx, lock.fence); // a late holder ends here, with a FencedOutError
      const [own, free] = await tx.batch([
        sql`SELECT id FROM seat WHERE taken_by = ${order} ORDER BY id`,
        sql`SELECT l.id AS id FROM seat AS l JOIN seat AS r ON r.id = l.id + 1
          WHERE l.taken_by IS NULL AND r.taken_by IS NULL ORDER BY l.id LIMIT 1`,
      ]);
      if (own?.rows.length) return own.rows.map(({ id }) => Number(id));
      if (!free?.rows[0]) return []; // without a commit, nothing has changed
      const left = Number(free.rows[0].id);
      await tx.commit([
        sql`UPDATE seat SET taken_by = ${order} WHERE id IN (${left}, ${left + 1})`,
      ]);
      return [left, left + 1];
    }),
  );
}

console.log((await takePair("order-7")).join(" ")); // 2 3
console.log((await takePair("order-7")).join(" ")); // 2 3
console.log((await takePair("order-8")).length); // 0
