import { lazy, lockedHandler } from "lockstep/lambda";
import { openMysql } from "lockstep/mysql";

// The first event opens the store, later ones find it.
const shop = lazy(() =>
  openMysql({ host: "127.0.0.1", port: 3306, user: "root", database: "shop" }),
);

/** Sells a seat: one order gets it, all others are told "sold-out", however often each of them is sent. */
export async function sell({ order, seat }: { order: string; seat: string }) {
  const { inventory } = await shop();
  const sale = await inventory.decrement({ sku: seat, quantity: 1, operationId: order });
  return sale.outcome;
}

/** Runs once at a time, and ends before its lock does. */
export const report = lockedHandler(
  async () => (await shop()).locks,
  { name: "report" },
  async ({ day }: { day: string }, lock) => {
    lock.assertHeld(); // before every effect outside
    return `the report of ${day}`;
  },
);
