import type { Entry, Inventory } from "../../core/inventory/inventory.ts";

/** How many entries are read at a time. */
const PAGE = 10_000;

/** All of a sku's ledger, newest first. */
export async function entriesOf(inventory: Inventory, sku: string): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
  for (let before = Number.MAX_SAFE_INTEGER; ; before = entries.at(-1)?.seq ?? 0) {
    const page = await inventory.history(sku, { limit: PAGE, before });
    entries.push(...page);
    if (page.length < PAGE) return entries;
  }
}

/** The sales in a shop's ledger: of which orders, and what each of them left. */
export function salesIn(entries: readonly Entry[], shop: string) {
  return entries
    .filter(({ kind, outcome }) => kind === "decrement" && outcome === "applied")
    .map(({ operationId = "", remaining }) => ({
      // Operation ids start with the shop's name: they are unique among all shops.
      orderId: operationId.slice(shop.length + 1),
      stock: remaining,
    }));
}
