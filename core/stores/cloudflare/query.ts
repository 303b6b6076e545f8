import { bytesToHex } from "@noble/hashes/utils.js";
import type { Row, Sql, SqlResult, SqlValue } from "../../database/sql.ts";

/** A statement for SQLite on Workers. */
export interface Query {
  readonly text: string;

  /**
   * All values as one JSON array, the only parameter: Workers bind numbers as doubles, and a hundred values at most.
   * Undefined without values.
   */
  readonly values: string | undefined;
}

export function toQuery({ texts, values }: Sql): Query {
  const text = texts.reduce(
    (all, next, i) => all + placeholder(values[i - 1] ?? null, i - 1) + next,
  );
  return { text, values: values.length === 0 ? undefined : `[${values.map(toJson).join(",")}]` };
}

function placeholder(value: SqlValue, index: number): string {
  return value instanceof Uint8Array ? `unhex(?1->>${index})` : `(?1->>${index})`;
}

/** A bigint is a number in JSON, which SQLite reads exactly. */
function toJson(value: SqlValue): string {
  if (typeof value === "bigint") return String(value);
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new RangeError(`a number in SQL must be finite, not ${value}`);
  }
  return JSON.stringify(value instanceof Uint8Array ? bytesToHex(value) : value);
}

/** The result of a query. Workers return blobs as buffers or as lists of bytes. */
export function toResult(rows: readonly Row[], affected: number): SqlResult {
  return { rows: rows.map(withBytes), affected, returned: undefined };
}

function withBytes(row: Row): Row {
  return Object.fromEntries(
    Object.entries(row).map(([column, value]) => [
      column,
      value instanceof ArrayBuffer || Array.isArray(value) ? new Uint8Array(value) : value,
    ]),
  );
}
