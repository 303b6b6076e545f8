import type { Page } from "../backend.ts";
import type { Entry, Kind, Outcome } from "../inventory.ts";
import type { Place } from "./place.ts";

export async function history(
  { redis, keys }: Place,
  sku: string,
  { limit, before }: Page,
): Promise<readonly Entry[]> {
  const newest = Math.max(before - 1, 0);
  const found = await redis.call(["XREVRANGE", keys.ledger(sku), newest, "-", "COUNT", limit], {
    reads: true,
  });
  return (found as readonly Found[]).map(toEntry);
}

type Found = readonly [id: string, fields: readonly string[]];

function toEntry([id, fields]: Found): Entry {
  const texts = new Map<string, string>();
  for (let i = 0; i < fields.length; i += 2) texts.set(fields[i] ?? "", fields[i + 1] ?? "");
  const text = (field: string) => texts.get(field) ?? "";
  return {
    seq: Number.parseInt(id, 10),
    kind: text("kind") as Kind,
    quantity: Number(text("quantity")),
    outcome: text("outcome") as Outcome,
    remaining: Number(text("remaining")),
    operationId: text("operation") || undefined,
    reservation: text("reservation") || undefined,
    fence: text("fence") || undefined,
    at: new Date(Number(text("at")) / 1_000),
  };
}
