import { type Database, sql } from "../../database/sql.ts";

/**
 * Puts the units of the sku's expired reservations back on hand.
 *
 * They are marked first, so that booking, recording and removing are about the same ones although the
 * clock goes on.
 */
export async function expireReservations(
  database: Pick<Database, "dialect" | "packet">,
  sku: string,
  limit?: AbortSignal,
): Promise<void> {
  const { now } = database.dialect;
  const mark = crypto.randomUUID();
  const marked = sql`FROM lockstep_reservation AS r WHERE r.sku = ${sku} AND r.closed_by = ${mark}`;
  const units = sql`(SELECT COALESCE(SUM(r.quantity), 0) ${marked})`;
  await database.packet(
    [
      sql`
        UPDATE lockstep_reservation SET closed_by = ${mark}
        WHERE sku = ${sku} AND expires_at <= ${now}`,
      sql`
        UPDATE lockstep_stock
        SET on_hand = on_hand + ${units}, reserved = reserved - ${units},
          seq = seq + (SELECT COUNT(*) ${marked}), changed_by = ${mark}
        WHERE sku = ${sku} AND EXISTS (SELECT 1 ${marked})`,
      sql`
        INSERT INTO lockstep_ledger (sku, seq, kind, quantity, outcome, on_hand, reservation, at)
        SELECT s.sku, s.seq - COUNT(*) OVER () + ROW_NUMBER() OVER (ORDER BY r.id),
          'expire', r.quantity, 'applied', s.on_hand, r.id, ${now}
        FROM lockstep_reservation AS r JOIN lockstep_stock AS s ON s.sku = r.sku
        WHERE r.sku = ${sku} AND r.closed_by = ${mark}`,
      sql`DELETE FROM lockstep_reservation WHERE sku = ${sku} AND closed_by = ${mark}`,
    ],
    limit,
  );
}
