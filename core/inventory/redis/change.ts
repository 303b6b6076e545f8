import { fenceOwner } from "../../lock/fence.ts";
import type { Input } from "../../redis/redis.ts";
import {
  type OrderAnswer,
  type Outcome,
  UnknownReservationError,
  UnknownSkuError,
} from "../inventory.ts";
import { type Batch, describe, hashOf, type Operation } from "../operation.ts";
import { fencedOut } from "./claim.ts";
import type { Keys } from "./keys.ts";
import type { Place } from "./place.ts";
import { CHANGE } from "./scripts.ts";
import { type Ending, settle } from "./settle.ts";

/** Does a batch once, however often this is called, in one script. All of its operations are of one kind. */
export async function change(
  place: Place,
  batch: Batch,
  signal: AbortSignal | undefined,
): Promise<readonly OrderAnswer[]> {
  const input = toInput(place.keys, batch);
  const writing = { what: `${describe(batch)} was done`, script: CHANGE, input, signal };
  let ending: Ending;
  do ending = await settle(place, writing);
  while (ending[0] === "again");
  return toAnswers(batch, ending);
}

function toInput(keys: Keys, { sku, fence, operations }: Batch): Omit<Input, "signal"> {
  const [{ kind, reservation, expiresIn }] = operations as readonly [Operation];
  const sought = reservation === undefined ? [] : [keys.operation(reservation)];
  return {
    keys: [
      ...[keys.stock(sku), keys.reservations(sku), keys.ledger(sku)],
      keys.claim(fence?.resource ?? ""),
      ...operations.map(({ operationId }) => keys.operation(operationId)),
      ...sought,
    ],
    args: [
      ...[kind, sku, String(fence ?? ""), (fence && fenceOwner(fence)) ?? ""],
      ...[reservation ?? "", expiresIn, keys.operation("")],
      ...operations.flatMap((operation) => [operation.quantity, payloadOf(operation)]),
    ],
  };
}

function payloadOf(operation: Operation): string {
  return Buffer.from(hashOf(operation)).toString("base64url");
}

/** Throws what the script has refused the batch for. */
function toAnswers(
  { sku, fence, operations }: Batch,
  [status, ...rest]: Ending,
): readonly OrderAnswer[] {
  if (status === "late" && fence) throw fencedOut(fence, rest[0]);
  if (status === "unknown-sku") throw new UnknownSkuError(sku);
  if (status === "unknown-reservation") {
    throw new UnknownReservationError(sku, operations[0]?.reservation ?? "");
  }
  return operations.map(({ operationId }, i) => {
    const [outcome, remaining, replayed] = rest.slice(3 * i, 3 * i + 3);
    return {
      operationId,
      outcome: outcome as Outcome | "conflict",
      remaining: Number(remaining),
      replayed: replayed === "1",
    };
  });
}
