import type { Page } from "../backend.ts";
import type { Entry, Kind, Outcome } from "../inventory.ts";
import type { Place } from "./place.ts";
import { READ } from "./scripts.ts";

/** Entries of a sku's ledger, the latest first. */
export async function history(
  { redis, keys }: Place,
  sku: string,
  { limit, before }: Page,
): Promise<readonly Entry[]> {
  const input = { keys: [keys.ledger(sku)], args: [limit, before] };
  const [first, texts] = (await redis.run(READ, input)) as readonly [string, readonly string[]];
  return texts.map((text, i) => toEntry(Number(first) + i, text)).reverse();
}

function toEntry(seq: number, text: string): Entry {
  const [kind, quantity, outcome, remaining, operation, reservation, fence, at] = text.split("\0");
  return {
    seq,
    kind: kind as Kind,
    quantity: Number(quantity),
    outcome: outcome as Outcome,
    remaining: Number(remaining),
    operationId: operation || undefined,
    reservation: reservation || undefined,
    fence: fence || undefined,
    at: new Date(Number(at) / 1_000),
  };
}
