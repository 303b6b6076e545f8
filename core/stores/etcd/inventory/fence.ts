import { quote } from "../../../lock/errors.ts";
import { type Fence, FencedOutError, fenceOwner } from "../../../lock/fence.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import {
  type Compare,
  type Get,
  get,
  isAbsent,
  isCreated,
  type KeyValue,
  type Put,
  put,
} from "../client/etcd.ts";
import { keyOfFence } from "../client/names.ts";
import type { EtcdContext, EtcdStockKeys } from "./context.ts";
import { commit, keyValuesIn } from "./transaction.ts";

/** The state that decides whether a fence is accepted. */
export interface FenceState {
  /** The claim that the resource stores: the highest fence that it has seen. */
  readonly claim: string | undefined;

  /** The fence was issued by a lock in etcd whose key no longer exists. */
  readonly isLockGone: boolean;
}

export const UNCLAIMED: FenceState = { claim: undefined, isLockGone: false };

/** Claims a resource for the fence. Rejects with a FencedOutError. */
export async function claim(context: EtcdContext, fence: Fence): Promise<void> {
  const what = `${quote(fence.resource)} was claimed`;
  await retryUntilKnown(context.etcd.address, what, undefined, (limit) =>
    tryClaim(context, fence, limit),
  );
}

async function tryClaim(context: EtcdContext, fence: Fence, limit: AbortSignal): Promise<true> {
  const { keys } = context;
  const otherwise = fenceReads(keys, fence);
  // Most resources are unclaimed when a fence first touches them.
  let state = UNCLAIMED;
  for (;;) {
    const when = isFenceUnchanged(keys, fence, state);
    const txn = { when, otherwise, state: raiseClaim(keys, fence, state), records: [] };
    const { succeeded, answers } = await commit(context, txn, limit);
    if (succeeded) return true;
    state = toFenceState(keys, fence, keyValuesIn(answers));
    checkFenceState(fence, state);
  }
}

/** The value of a claim's key: the text of the fence, and its owner. */
export function claimValue(fence: Fence): string {
  return `${fence} ${fenceOwner(fence)}`;
}

/** Whether the claim belongs to a later fence, or to another holder's equal one. */
export function isSuperseded(claim: string, fence: Fence): boolean {
  return fenceIn(claim) > String(fence) || isOfAnotherOwner(claim, fence);
}

/** A claim that was stored without an owner belongs to every holder of the fence. */
function isOfAnotherOwner(claim: string, fence: Fence): boolean {
  return claim.startsWith(`${fence} `) && claim !== claimValue(fence);
}

function fenceIn(claim: string): string {
  return claim.split(" ", 1)[0] ?? "";
}

/** Reads the state of a fence. */
export function fenceReads(keys: EtcdStockKeys, fence: Fence): readonly Get[] {
  const lock = keyOfFence(fence);
  return [get(keys.claim(fence.resource)), ...(lock === undefined ? [] : [get(lock)])];
}

export function toFenceState(
  keys: EtcdStockKeys,
  fence: Fence,
  found: ReadonlyMap<string, KeyValue>,
): FenceState {
  const lock = keyOfFence(fence);
  return {
    claim: found.get(keys.claim(fence.resource))?.value,
    isLockGone: lock !== undefined && found.get(lock)?.createRevision !== fence.token,
  };
}

/** Throws a FencedOutError if the fence is late or its lock is gone. */
export function checkFenceState(fence: Fence, { claim = "", isLockGone }: FenceState): void {
  if (isSuperseded(claim, fence)) {
    const byEqual = isOfAnotherOwner(claim, fence);
    throw new FencedOutError(fence, fenceIn(claim), { byEqual });
  }
  if (isLockGone) throw new FencedOutError(fence, String(fence));
}

/** Holds if the claim has not changed and the fence's lock still exists. */
export function isFenceUnchanged(
  keys: EtcdStockKeys,
  fence: Fence,
  { claim }: FenceState,
): readonly Compare[] {
  const key = keys.claim(fence.resource);
  const lock = keyOfFence(fence);
  return [
    claim === undefined ? isAbsent(key) : { keys: key, target: "value", is: "=", than: claim },
    ...(lock === undefined ? [] : [isCreated(lock, fence.token)]),
  ];
}

/** Raises the resource's claim to the fence if the claim is lower. */
export function raiseClaim(
  keys: EtcdStockKeys,
  fence: Fence,
  { claim = "", isLockGone }: FenceState,
): readonly Put[] {
  const isRaised = isSuperseded(claim, fence) || claim === claimValue(fence);
  return isLockGone || isRaised ? [] : [put(keys.claim(fence.resource), claimValue(fence))];
}
