import {
  type Compare,
  isAbsent,
  type Lease,
  type Op,
  type Put,
  put,
  remove,
} from "../../etcd/etcd.ts";
import type { Entry } from "../inventory.ts";
import type { Batch } from "../operation.ts";
import type { Done, Plan } from "../plan.ts";
import { book, isUnchanged, type Write } from "./commit.ts";
import { raise, standsSo } from "./fencing.ts";
import type { Keys } from "./keys.ts";
import { packedNew, piecesOf } from "./pieces.ts";
import type { Units } from "./records.ts";
import { reads, type View } from "./view.ts";

/** What a batch comes to, and what that was decided on. */
export interface Decided {
  readonly batch: Batch;
  readonly view: View;
  readonly plan: Plan<Units>;

  /** Of the reservation that is made. */
  readonly lease: Lease | undefined;
}

/** Writes what was decided if all is still as it was; otherwise it looks again. */
export function toWrite(keys: Keys, decided: Decided): Write {
  const { batch, view, plan, lease } = decided;
  const { sku, fence } = batch;
  const { done } = plan;
  const booked = book(keys, { sku, units: plan.stock, news: done.map(toEntry) });
  return {
    when: conditions(keys, decided),
    state: [...booked.state, ...(fence ? raise(keys, fence, view.standing) : [])],
    records: [
      ...booked.records,
      ...done.flatMap((one) => reservationOps(keys, one, lease)),
      ...packedNew(done.map((one) => putOperation(keys, one))),
    ],
    otherwise: reads(keys, batch),
  };
}

function conditions(keys: Keys, { batch, view, plan }: Decided): readonly Compare[] {
  const { sku, fence } = batch;
  const [first = []] = piecesOf(plan.done);
  return [
    isUnchanged(keys, sku, view.stock),
    ...(fence ? standsSo(keys, fence, view.standing) : []),
    ...first.map(({ operation }) => isAbsent(keys.operation(operation.operationId))),
    ...plan.done.flatMap((one) => isInTime(keys, one)),
  ];
}

/** A reservation that expires at the last moment is not confirmed. */
function isInTime(keys: Keys, { operation, outcome }: Done): readonly Compare[] {
  const { kind, sku, reservation = "" } = operation;
  if (kind !== "confirm" || outcome !== "applied") return [];
  return [{ keys: keys.open(sku, reservation), target: "create", is: "!=", than: 0n }];
}

function reservationOps(
  keys: Keys,
  { operation, outcome, quantity }: Done,
  lease: Lease | undefined,
): readonly Op[] {
  const { kind, sku, operationId, reservation } = operation;
  if (outcome !== "applied") return [];
  if (reservation !== undefined) return [remove({ prefix: keys.reservation(sku, reservation) })];
  if (kind !== "reserve") return [];
  return [
    put(keys.open(sku, operationId), "", lease),
    put(keys.units(sku, operationId), String(quantity)),
  ];
}

function putOperation(keys: Keys, { operation, outcome, remaining }: Done): Put {
  const { operationId, kind, sku, quantity, reservation } = operation;
  const record = { kind, sku, quantity, reservation, outcome, remaining };
  return put(keys.operation(operationId), JSON.stringify(record));
}

function toEntry({ operation, quantity, outcome, remaining }: Done): Omit<Entry, "seq" | "at"> {
  const { kind, operationId, reservation, fence } = operation;
  const about = { operationId, reservation, fence: fence && String(fence) };
  return { kind, quantity, outcome, remaining, ...about };
}
