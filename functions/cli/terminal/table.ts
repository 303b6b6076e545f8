import Table from "cli-table3";
import { escapeControls } from "../../display/escape-controls.ts";

/** Draws a table. Aligns numbers right and escapes control characters. */
export function table(
  head: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): string {
  if (rows.length === 0) return "none";
  const colAligns = head.map((_, i) => (typeof rows[0]?.[i] === "number" ? "right" : "left"));
  const chars = { mid: "", "left-mid": "", "mid-mid": "", "right-mid": "" };
  const rendered = new Table({
    head: [...head],
    colAligns,
    chars,
    style: { head: [], border: [] },
  });
  rendered.push(...rows.map((row) => row.map((cell) => escapeControls(String(cell)))));
  return rendered.toString();
}
