import type { Entry, Stock } from "../inventory.ts";
import { hashOf, type Operation } from "../operation.ts";
import type { Noted } from "../plan.ts";

/** The units of a sku, as they stand in its key. */
export interface Units extends Omit<Stock, "sku"> {
  /** The number of the last entry in the ledger. */
  readonly seq: number;

  /** How many reservations have units set aside, whether or not their time is over. */
  readonly reservations: number;
}

export const NOTHING: Units = {
  onHand: 0,
  reserved: 0,
  sold: 0,
  supplied: 0,
  seq: 0,
  reservations: 0,
};

/** What stands under an operation's id: what it was, and its answer. */
export interface Recorded
  extends Noted,
    Pick<Operation, "kind" | "sku" | "quantity" | "reservation"> {}

export function toUnits(text: string): Units {
  return JSON.parse(text);
}

export function toRecorded(text: string): Recorded {
  const record = JSON.parse(text);
  return { ...record, hash: hashOf(record) };
}

export function toEntries(text: string): readonly Entry[] {
  return JSON.parse(text).map((entry: Entry) => ({ ...entry, at: new Date(entry.at) }));
}
