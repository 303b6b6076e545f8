import { html, nothing, type TemplateResult } from "lit-html";
import { live } from "lit-html/directives/live.js";
import { type Route, refine } from "./view.ts";

export type Cell = TemplateResult | string | number | undefined | typeof nothing;

interface Column {
  readonly name: string;

  /** Aligns numbers. */
  readonly isNumber?: boolean;
}

/** Draws a table. Columns with a "#" before their name hold numbers. */
export function table(
  caption: string,
  columns: readonly string[],
  rows: readonly (readonly Cell[])[],
): TemplateResult {
  const heads = columns.map(toColumn);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption>${caption}</caption>
      <thead>
        <tr>${heads.map(({ name, isNumber }) => html`<th scope="col" class=${isNumber ? "number" : ""}>${name}</th>`)}</tr>
      </thead>
      <tbody>
        ${rows.map(
          (cells) =>
            html`<tr>${cells.map((cell, i) => html`<td class=${heads[i]?.isNumber ? "number" : ""}>${cell ?? nothing}</td>`)}</tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function toColumn(column: string): Column {
  return column.startsWith("#") ? { name: column.slice(1), isNumber: true } : { name: column };
}

/** Draws a list of facts. Facts without a value are left out. */
export function facts(entries: readonly (readonly [name: string, value: Cell])[]): TemplateResult {
  const known = entries.filter(
    ([, value]) => value !== undefined && value !== "" && value !== nothing,
  );
  return html`<dl>${known.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** A field whose text becomes a word of the address. */
export function searchField(route: Route, name: string, label: string): TemplateResult {
  const search = ({ currentTarget }: Event) =>
    refine(route, { [name]: (currentTarget as HTMLInputElement).value, after: "" });
  return html`<label>${label}
    <input type="search" autocomplete="off" spellcheck="false" .value=${live(route.query.get(name) ?? "")} @input=${search}>
  </label>`;
}

export function choice(
  route: Route,
  name: string,
  label: string,
  choices: readonly string[],
): TemplateResult {
  const choose = ({ currentTarget }: Event) =>
    refine(route, { [name]: (currentTarget as HTMLSelectElement).value, after: "" });
  const chosen = route.query.get(name) ?? "";
  return html`<label>${label}
    <select @change=${choose}>
      <option value="" ?selected=${chosen === ""}>any</option>
      ${choices.map((each) => html`<option ?selected=${each === chosen}>${each}</option>`)}
    </select>
  </label>`;
}

export function emptyLine(text: string): TemplateResult {
  return html`<p class="empty">${text}</p>`;
}
