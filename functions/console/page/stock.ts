import { html, nothing, type TemplateResult } from "lit-html";
import type { LedgerEntry, Reservation, StockLevel } from "../../../core/inventory/inventory.ts";
import { MOST_ROWS, type StockAnswer } from "../shapes.ts";
import { clock, formatDuration, href, shortFence } from "./format.ts";
import { emptyLine, facts, searchField, table } from "./parts.ts";
import { read } from "./server.ts";
import { type AnyView, type Route, refine, view } from "./view.ts";

/** The skus and their levels. */
export function stockView(route: Route): AnyView {
  const word = (name: string) => route.query.get(name) ?? "";
  return view<StockAnswer>({
    title: "Stock",
    load: () => read("stock", { prefix: word("prefix"), after: word("after") }),
    draw: ({ levels, hasMore }) => html`
      <form class="filters" @submit=${(event: Event) => event.preventDefault()}>
        ${searchField(route, "prefix", "Sku begins with")}
      </form>
      ${
        levels.length === 0
          ? emptyLine("There is no stock.")
          : table(
              "Stock",
              ["Sku", "#On hand", "#Reserved", "#Sold", "#Supplied"],
              levels.map(({ sku, onHand, reserved, sold, supplied }) => [
                html`<a href=${href("stock", sku)}>${sku}</a>`,
                ...[onHand, reserved, sold, supplied],
              ]),
            )
      }
      ${
        hasMore
          ? html`<button @click=${() => refine(route, { after: levels.at(-1)?.sku ?? "" })}>Next page</button>`
          : nothing
      }`,
  });
}

/** As JSON. */
interface SkuAnswer {
  readonly level?: StockLevel;
  readonly reservations: readonly Reservation[];
  readonly entries: readonly (Omit<LedgerEntry, "at"> & { readonly at: string })[];
}

/** One sku and its ledger. */
export function skuView(sku: string, route: Route): AnyView {
  return view<SkuAnswer>({
    title: sku,
    load: () => read("sku", { sku, before: route.query.get("before") ?? "" }),
    draw: ({ level, reservations, entries }) => html`
      <h2>${sku}</h2>
      ${
        level
          ? facts([
              ["On hand", level.onHand],
              ["Reserved", level.reserved],
              ["Sold", level.sold],
              ["Supplied", `${level.supplied}, which is on hand + reserved + sold`],
              ["Lock", html`<a href=${href("locks", `sku/${sku}`)}>sku/${sku}</a>`],
            ])
          : html`<p>This sku does not exist.</p>`
      }
      ${reservations.length > 0 ? reservationTable(reservations) : nothing}
      ${table(
        "Ledger, newest first",
        [
          "#Entry",
          "Time",
          "Change",
          "#Quantity",
          "Outcome",
          "#On hand",
          "Operation",
          "Reservation",
          "#Fence",
        ],
        entries.map((entry) => [
          entry.seq,
          clock(entry.at),
          entry.kind,
          entry.quantity,
          html`<span class="badge ${entry.outcome}">${entry.outcome}</span>`,
          entry.remaining,
          entry.operationId,
          entry.reservation,
          shortFence(entry.fence),
        ]),
      )}
      ${
        (entries.at(-1)?.seq ?? 1) > 1
          ? html`<button @click=${() => refine(route, { before: String(entries.at(-1)?.seq ?? "") })}>Older entries</button>`
          : nothing
      }`,
  });
}

function reservationTable(reservations: readonly Reservation[]): TemplateResult {
  const isAll = reservations.length < MOST_ROWS;
  return table(
    isAll ? "Open reservations" : `The first ${MOST_ROWS} open reservations`,
    ["Reservation", "#Quantity", "#Expires in"],
    reservations.map(({ id, quantity, expiresIn }) => [
      id,
      quantity,
      expiresIn > 0 ? formatDuration(expiresIn) : "expired",
    ]),
  );
}
