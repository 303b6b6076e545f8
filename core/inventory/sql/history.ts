import { asBigInt, asNumber, asText, type Database, type Row, sql } from "../../database/sql.ts";
import { formatFence } from "../../lock/fence.ts";
import type { Page } from "../backend.ts";
import type { Entry, Kind, Outcome } from "../inventory.ts";

export async function history(
  database: Database,
  sku: string,
  { limit, before }: Page,
): Promise<readonly Entry[]> {
  const rows = await database.read(sql`
    SELECT seq, kind, quantity, outcome, on_hand, operation_id, reservation, generation, token, at
    FROM lockstep_ledger
    WHERE sku = ${sku} AND seq < ${before}
    ORDER BY seq DESC
    LIMIT ${limit}`);
  return rows.map(toEntry);
}

function toEntry(row: Row): Entry {
  const optional = (value: unknown) => (value == null ? undefined : asText(value));
  return {
    seq: asNumber(row.seq),
    kind: asText(row.kind) as Kind,
    quantity: asNumber(row.quantity),
    outcome: asText(row.outcome) as Outcome,
    remaining: asNumber(row.on_hand),
    operationId: optional(row.operation_id),
    reservation: optional(row.reservation),
    fence:
      row.token == null ? undefined : formatFence(asNumber(row.generation), asBigInt(row.token)),
    at: new Date(asNumber(row.at) / 1_000),
  };
}
