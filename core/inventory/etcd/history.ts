import { get } from "../../etcd/etcd.ts";
import type { Page } from "../backend.ts";
import type { Entry } from "../inventory.ts";
import type { Place } from "./place.ts";
import { toEntries } from "./records.ts";

/** How many keys are read at a time; each holds the entries of one transaction, up to a piece of them. */
const PAGE = 100;

export async function history(
  { etcd, keys }: Place,
  sku: string,
  { limit, before }: Page,
): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
  let after = keys.entries(sku, before);
  for (;;) {
    const { kvs } = await etcd.range(get({ prefix: keys.ledger(sku) }, { limit: PAGE, after }));
    const newestFirst = kvs.flatMap(({ value }) => toEntries(value).toReversed());
    entries.push(...newestFirst.filter(({ seq }) => seq < before));
    if (entries.length >= limit || kvs.length < PAGE) return entries.slice(0, limit);
    after = kvs.at(-1)?.key ?? after;
  }
}
