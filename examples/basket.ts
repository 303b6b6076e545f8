import type { StockOperations } from "lockstep/inventory";
import { openPostgres } from "lockstep/postgres";

interface Line {
  readonly id: string;
  readonly sku: string;
  readonly quantity: number;
}

interface Reserved {
  readonly attempt: string;
  readonly lines: readonly Line[];
}

await using shop = await openPostgres({
  host: "127.0.0.1",
  port: 5432,
  user: "shop",
  database: "shop",
});
const { database, inventory } = shop;
await inventory.set({ sku: "chair", quantity: 2, operationId: "count-of-chairs" });

/** Sets the units of all lines aside for 15 minutes, or of none, in place of those of `before`. */
function reserveBasket(attempt: string, lines: readonly Line[], before?: Reserved) {
  return database.transaction(async (tx) => {
    const stock = inventory.within(tx);
    if (before) await cancelBasket(before.attempt, before.lines, stock);
    for (const { id, sku, quantity } of lines.toSorted(bySku)) {
      const change = { sku, quantity, operationId: `${attempt}/${id}` };
      const { outcome } = await stock.reserve({ ...change, expiresIn: "15m" });
      if (outcome !== "applied") return false; // without a commit, nothing has changed
    }
    await tx.commit([]); // commits what `stock` has changed
    return true;
  });
}

/** Sells the reserved units. Returns the lines that have expired and are sold out by now: refund them. */
async function sellBasket(attempt: string, lines: readonly Line[]) {
  const missing: Line[] = [];
  for (const line of lines) {
    const { sku, quantity } = line;
    const id = `${attempt}/${line.id}`;
    const paid = await inventory.confirm({ sku, reservation: id, operationId: `${id}/paid` });
    if (paid.outcome === "applied") continue;
    const late = await inventory.decrement({ sku, quantity, operationId: `${id}/late` });
    if (late.outcome !== "applied") missing.push(line);
  }
  return missing;
}

/** Puts the reserved units back on hand. */
async function cancelBasket(
  attempt: string,
  lines: readonly Line[],
  stock: StockOperations = inventory,
) {
  for (const { id, sku } of lines.toSorted(bySku)) {
    const reservation = `${attempt}/${id}`;
    await stock.cancel({ sku, reservation, operationId: `${reservation}/cancelled` });
  }
}

/** Puts expired units back on hand, for pages that show them. A sale that is short of units does so itself. */
async function sweep(after = ""): Promise<void> {
  const page = await inventory.list({ after, limit: 1_000 });
  for (const { sku, reserved } of page) {
    if (reserved > 0) await inventory.expire(sku);
  }
  const last = page.at(-1);
  if (last) await sweep(last.sku);
}

function bySku(one: Line, other: Line) {
  return one.sku < other.sku ? -1 : 1;
}

const one = [{ id: "line-1", sku: "chair", quantity: 1 }];
const two = [{ id: "line-1", sku: "chair", quantity: 2 }];
console.log(await reserveBasket("attempt-1", one)); // true
console.log(await reserveBasket("attempt-2", two)); // false
console.log(await reserveBasket("attempt-3", two, { attempt: "attempt-1", lines: one })); // true
await sweep();
console.log((await sellBasket("attempt-3", two)).length); // 0
