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
await inventory.set({ sku: "chair", quantity: 1, operationId: "count-of-chairs" });

/** Sets the units of all lines aside, or of none. */
function reserveOrder(reservation: string, lines: readonly Line[]) {
  return database.transaction(async (tx) => {
    for (const { id, sku, quantity } of lines.toSorted(bySku)) {
      const change = { sku, quantity, operationId: `${reservation}/${id}` };
      const { outcome } = await inventory.within(tx).reserve({ ...change, expiresIn: "30m" });
      if (outcome !== "applied") return false; // without a commit, nothing has changed
    }
    await tx.commit([]);
    return true;
  });
}

/** Sells the reserved units. Returns the lines whose units have expired and are sold out: refund them. */
async function sellOrder(reservation: string, lines: readonly Line[]) {
  const missing: Line[] = [];
  for (const line of lines) {
    const { sku, quantity } = line;
    const id = `${reservation}/${line.id}`;
    const paid = await inventory.confirm({ sku, reservation: id, operationId: `${id}/paid` });
    if (paid.outcome === "applied") continue;
    const late = await inventory.decrement({ sku, quantity, operationId: `${id}/late` });
    if (late.outcome !== "applied") missing.push(line);
  }
  return missing;
}

/** Puts the reserved units back on hand. */
async function cancelOrder(reservation: string, lines: readonly Line[]) {
  for (const { id: line, sku } of lines) {
    const id = `${reservation}/${line}`;
    await inventory.cancel({ sku, reservation: id, operationId: `${id}/cancelled` });
  }
}

function bySku(one: Line, other: Line) {
  return one.sku < other.sku ? -1 : 1;
}

const lines = [{ id: "7", sku: "chair", quantity: 1 }];
console.log(await reserveOrder("first", lines)); // true
console.log(await reserveOrder("second", lines)); // false
await cancelOrder("first", lines);
console.log(await reserveOrder("third", lines)); // true
console.log((await sellOrder("third", lines)).length); // 0
