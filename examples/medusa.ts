import { openPostgres } from "lockstep/postgres";

interface Line {
  readonly id: string;
  readonly sku: string;
  readonly quantity: number;
}

await using shop = await openPostgres({
  host: "127.0.0.1",
  port: 5432,
  user: "shop",
  database: "shop",
});
const { database, inventory } = shop;
await inventory.set({ sku: "lamp", quantity: 1, operationId: "count-of-lamps" });

/** Sells the units of all lines, or of none. `run` names this attempt to complete the cart. */
function sellCart(run: string, lines: readonly Line[]) {
  return database.transaction(async (tx) => {
    for (const { id, sku, quantity } of lines.toSorted(bySku)) {
      const change = { sku, quantity, operationId: `${run}/${id}` };
      const { outcome } = await inventory.within(tx).decrement(change);
      if (outcome !== "applied") return false; // without a commit, nothing has changed
    }
    await tx.commit([]);
    return true;
  });
}

/** Puts the units of a failed attempt back. */
async function returnCart(run: string, lines: readonly Line[]) {
  for (const { id, sku, quantity } of lines) {
    await inventory.restock({ sku, quantity, operationId: `${run}/${id}/returned` });
  }
}

function bySku(one: Line, other: Line) {
  return one.sku < other.sku ? -1 : 1;
}

const lines = [{ id: "line-1", sku: "lamp", quantity: 1 }];
console.log(await sellCart("run-1", lines)); // true
console.log(await sellCart("run-2", lines)); // false
await returnCart("run-1", lines);
console.log(await sellCart("run-3", lines)); // true
