import { LONGEST_TURN } from "../../../inventory/turn.ts";
import type { Millis } from "../../../lock/time.ts";
import { type Put, put } from "../client/etcd.ts";
import type { CachedKey, EtcdStockKeys } from "./context.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * Asks the other clients of a sku to wait for `span`, and refuses their plans that are under way.
 *
 * Otherwise a client that commits once per round trip is always first: the plan of another client is a round trip old when
 * it arrives.
 */
export function askForTurn(keys: EtcdStockKeys, sku: string, span: Millis): Put {
  return put(keys.turn(sku), String(Math.ceil(Math.min(span, LONGEST_TURN))));
}

/**
 * Returns how long another client has asked to wait. Its turn ends when somebody changes the stock.
 *
 * `known` is the last turn that this client has waited for, or has asked for itself.
 */
export function turnAskedFor(
  { stockKey, turnKey }: Snapshot,
  known: CachedKey | undefined,
): Millis {
  if (!stockKey || !turnKey || turnKey.modRevision === known?.modRevision) return 0;
  if (turnKey.modRevision < stockKey.modRevision) return 0;
  return Math.min(Number(turnKey.value), LONGEST_TURN);
}
