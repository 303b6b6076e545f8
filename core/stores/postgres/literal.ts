import { checkValue, type Sql, type SqlValue } from "../../database/sql.ts";

/** Writes the statement with its values as literals: a prepared statement would be state of a session. */
export function render({ texts, values }: Sql): string {
  return texts.reduce((text, next, i) => text + literal(values[i - 1] ?? null) + next);
}

function literal(value: SqlValue): string {
  if (value === null) return "NULL";
  if (typeof value === "string") return quoted(value);
  if (value instanceof Uint8Array) return `decode('${Buffer.from(value).toString("hex")}', 'hex')`;
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new RangeError(`a number in SQL must be finite, not ${value}`);
  }
  checkValue(value);
  // Two minus signs in a row would begin a comment.
  return value < 0 ? `(${value})` : String(value);
}

/** Right under both values of standard_conforming_strings. The client's encoding is UTF-8, which has no quote within a character. */
function quoted(text: string): string {
  if (text.includes("\0")) throw new RangeError("a text in PostgreSQL cannot contain U+0000");
  const doubled = text.replaceAll("'", "''");
  return doubled.includes("\\") ? ` E'${doubled.replaceAll("\\", "\\\\")}'` : `'${doubled}'`;
}
