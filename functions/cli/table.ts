import Table from "cli-table3";

/** Rows under a head, as text; numbers go to the right. Control characters in cells are shown, not obeyed. */
export function table(
  head: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): string {
  if (rows.length === 0) return "none";
  const colAligns = head.map((_, i) => (typeof rows[0]?.[i] === "number" ? "right" : "left"));
  const chars = { mid: "", "left-mid": "", "mid-mid": "", "right-mid": "" };
  const lines = new Table({ head: [...head], colAligns, chars, style: { head: [], border: [] } });
  lines.push(...rows.map((row) => row.map((cell) => String(cell).replace(/\p{Cc}/gu, escaped))));
  return lines.toString();
}

function escaped(character: string): string {
  return JSON.stringify(character).slice(1, -1);
}
