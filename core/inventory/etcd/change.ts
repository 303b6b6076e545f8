import { type Lease, NoLeaseError } from "../../etcd/etcd.ts";
import { newLease, toSeconds } from "../../etcd/leases.ts";
import { sleep } from "../../lock/abort.ts";
import { quote } from "../../lock/errors.ts";
import { insist } from "../../lock/insist.ts";
import { elapsedSince, instant, type Millis } from "../../lock/time.ts";
import type { OrderAnswer } from "../inventory.ts";
import type { Batch } from "../operation.ts";
import type { Plan } from "../plan.ts";
import { commit } from "./commit.ts";
import { decide } from "./decide.ts";
import { putBack } from "./expiry.ts";
import type { Place } from "./place.ts";
import type { Units } from "./records.ts";
import { guess, look, toView, type View } from "./view.ts";
import { type Decided, toWrite } from "./write.ts";

/**
 * Does a batch once, however often this is called, in one transaction.
 *
 * What it comes to is decided here, on what was read, and written only if that is still so.
 */
export function change(
  place: Place,
  batch: Batch,
  signal: AbortSignal | undefined,
): Promise<readonly OrderAnswer[]> {
  const what = `${describe(batch)} was done`;
  return insist(place.etcd.address, what, signal, (limit) => attempt(place, batch, limit));
}

function describe({ sku, operations }: Batch): string {
  const [first] = operations;
  return first && operations.length === 1
    ? `${first.kind} ${quote(first.operationId)}`
    : `a batch of ${operations.length} for ${quote(sku)}`;
}

/** In turn with the other changes of the sku by this client, which would only be in each other's way. */
async function attempt(
  place: Place,
  batch: Batch,
  limit: AbortSignal,
): Promise<readonly OrderAnswer[] | undefined> {
  await place.line.enter(batch.sku, limit);
  try {
    return await settle(place, batch, limit);
  } catch (error) {
    // An id was used for another sku in the meantime, or the lease of a new reservation has ended.
    if (error instanceof NoLeaseError) return undefined;
    throw error;
  } finally {
    place.line.leave(batch.sku);
  }
}

async function settle(
  place: Place,
  batch: Batch,
  limit: AbortSignal,
): Promise<readonly OrderAnswer[]> {
  let view = guess(place, batch) ?? (await look(place, batch, limit));
  let lease: Lease | undefined;
  for (let conflicts = 0; ; conflicts += 1) {
    const plan = decide(batch, view);
    if (mayGain(plan) && (await putBack(place, batch.sku, limit))) {
      view = await look(place, batch, limit);
      continue;
    }
    lease ??= await grant(place, plan, limit);
    const sentAt = instant();
    const news = await write(place, { batch, view, plan, lease }, limit);
    if (news === undefined) {
      if (lease !== undefined && !isReserving(plan)) giveBack(place, lease);
      return plan.answers;
    }
    if (conflicts > 0) await sleep(pause(conflicts, elapsedSince(sentAt)), limit);
    view = conflicts > 0 ? await look(place, batch, limit) : news;
  }
}

/** Resolves to undefined when it is written, or else to what has changed. */
async function write(
  place: Place,
  decided: Decided,
  limit: AbortSignal,
): Promise<View | undefined> {
  const { batch, view, plan } = decided;
  const txn = toWrite(place.keys, decided);
  if (txn.state.length === 0) return undefined;
  const { succeeded, answers } = await commit(place, txn, limit);
  if (!succeeded) return toView(place, batch, answers);
  if (view.lease !== undefined && plan.done.length > 0) giveBack(place, view.lease);
  return undefined;
}

/**
 * Who tries again at once comes after the one who has just won, who knew as much and sooner: of many clients
 * on one sku, all but one would be refused for ever. After up to 2, 4, … 32 round trips it is anybody's turn.
 */
function pause(conflicts: number, roundTrip: Millis): Millis {
  return Math.min(2 ** conflicts, 32) * roundTrip * Math.random();
}

/** It is short of units, and there are reservations that may have expired. */
function mayGain({ isShort, stock }: Plan<Units>): boolean {
  return isShort && stock.reservations > 0;
}

function isReserving({ done: [first] }: Plan<Units>): boolean {
  return first?.operation.kind === "reserve" && first.outcome === "applied";
}

/** The lease that the time of a new reservation hangs on. */
async function grant(
  { etcd }: Place,
  plan: Plan<Units>,
  limit: AbortSignal,
): Promise<Lease | undefined> {
  const { expiresIn = 0 } = plan.done[0]?.operation ?? {};
  if (!isReserving(plan)) return undefined;
  const lease = newLease();
  await etcd.grant(lease, toSeconds(expiresIn / 1_000), limit);
  return lease;
}

/** Ends a lease that no key is attached to: of a reservation that was closed, or was not made after all. */
function giveBack({ etcd }: Place, lease: Lease): void {
  // When this fails, it ends by itself.
  void etcd.revoke(lease).catch(() => {});
}
