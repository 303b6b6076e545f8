import type { Inventory, LedgerEntry } from "../../core/inventory/inventory.ts";

/** The number of entries per read. */
const PAGE = 10_000;

/** Reads the whole ledger of a sku, newest entry first. */
export async function readLedger(
  inventory: Inventory,
  sku: string,
): Promise<readonly LedgerEntry[]> {
  const entries: LedgerEntry[] = [];
  for (let before = Number.MAX_SAFE_INTEGER; ; before = entries.at(-1)?.seq ?? 0) {
    const page = await inventory.history(sku, { limit: PAGE, before });
    entries.push(...page);
    if (page.length < PAGE) return entries;
  }
}

/** Returns the sales in a shop's ledger, with order ids and remaining stock. */
export function salesInLedger(entries: readonly LedgerEntry[], shop: string) {
  return entries
    .filter(({ kind, outcome }) => kind === "decrement" && outcome === "applied")
    .map(({ operationId = "", remaining }) => ({
      // Operation ids start with the shop's name, since they are unique among all shops.
      orderId: operationId.slice(shop.length + 1),
      stock: remaining,
    }));
}
