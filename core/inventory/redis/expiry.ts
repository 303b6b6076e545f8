import { quote } from "../../lock/errors.ts";
import { AT_ONCE } from "./lua.ts";
import type { Place } from "./place.ts";
import { EXPIRE } from "./scripts.ts";
import { settle } from "./settle.ts";

/** Puts the units of all of the sku's expired reservations back on hand. */
export async function expire(place: Place, sku: string): Promise<void> {
  const { keys } = place;
  const input = { keys: [keys.stock(sku), keys.reservations(sku), keys.ledger(sku)] };
  const what = `the expired reservations of ${quote(sku)} were put back`;
  let count: string | undefined;
  do [, count] = await settle(place, { what, script: EXPIRE, input });
  while (Number(count) === AT_ONCE);
}
