import { sql } from "lockstep/database";
import { lazy } from "lockstep/lambda";
import { openPostgres } from "lockstep/postgres";

interface Line {
  readonly id: string;
  readonly sku: string;
  readonly quantity: number;
}

// CREATE TABLE cart_sale (cart TEXT PRIMARY KEY, attempt TEXT NOT NULL, lines TEXT NOT NULL, sold_at TIMESTAMPTZ NOT NULL DEFAULT now())
const shop = lazy(() =>
  openPostgres({ host: "127.0.0.1", port: 5432, user: "shop", database: "shop" }),
);

/** Sells the units of all lines, or of none. Each call has an attempt of its own; one attempt has the cart. */
export async function sellCart(cart: string, attempt: string, lines: readonly Line[]) {
  const { database, inventory } = await shop();
  return database.transaction(async (tx) => {
    const values = sql`${cart}, ${attempt}, ${JSON.stringify(lines)}`;
    const claim = sql`INSERT INTO cart_sale (cart, attempt, lines) VALUES (${values}) ON CONFLICT DO NOTHING`;
    const [claimed] = await tx.batch([claim]);
    if (claimed?.affected !== 1) return "the cart is being completed";
    for (const { id, sku, quantity } of lines.toSorted(bySku)) {
      const change = { sku, quantity, operationId: `${attempt}/${id}` };
      const { outcome } = await inventory.within(tx).decrement(change);
      if (outcome !== "applied") return "sold out"; // without a commit, nothing has changed
    }
    await tx.commit([]);
    return "sold";
  });
}

/** Puts the units of a failed attempt back, once, and gives the cart free. */
export async function returnCart(cart: string, attempt: string, lines: readonly Line[]) {
  const { database, inventory } = await shop();
  await database.transaction(async (tx) => {
    const free = sql`DELETE FROM cart_sale WHERE cart = ${cart} AND attempt = ${attempt}`;
    const [freed] = await tx.batch([free]);
    if (freed?.affected !== 1) return; // it has sold nothing, or was returned before
    for (const { id, sku, quantity } of lines.toSorted(bySku)) {
      const change = { sku, quantity, operationId: `${attempt}/${id}/returned` };
      await inventory.within(tx).restock(change);
    }
    await tx.commit([]);
  });
}

function bySku(one: Line, other: Line) {
  return one.sku < other.sku ? -1 : 1;
}
