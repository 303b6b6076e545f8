import {
  type Compare,
  type Get,
  get,
  isAbsent,
  isCreated,
  type KeyValue,
  type Put,
  put,
} from "../../etcd/etcd.ts";
import { keyOfFence } from "../../etcd/names.ts";
import { FencedOutError } from "../../lock/errors.ts";
import { type Fence, fenceOwner } from "../../lock/fence.ts";
import type { Keys } from "./keys.ts";

/** How a fence stands. */
export interface Standing {
  /** What the resource keeps of the highest fence that it has seen. */
  readonly claim: string | undefined;

  /** The fence was issued by a lock in etcd that is there no more. */
  readonly isGone: boolean;
}

/** What a resource keeps of a fence: its text, and whose it is. */
export function claimOf(fence: Fence): string {
  return `${fence} ${fenceOwner(fence)}`;
}

/** Whether the claim is that of a later fence, or of another holder's equal one. */
export function isAhead(claim: string, fence: Fence): boolean {
  return fenceIn(claim) > String(fence) || isRival(claim, fence);
}

/** Claims made before owners were kept are whoever's has the fence. */
function isRival(claim: string, fence: Fence): boolean {
  return claim.startsWith(`${fence} `) && claim !== claimOf(fence);
}

function fenceIn(claim: string): string {
  return claim.split(" ", 1)[0] ?? "";
}

/** What is read to know how a fence stands. */
export function standingReads(keys: Keys, fence: Fence): readonly Get[] {
  const lock = keyOfFence(fence);
  return [get(keys.claim(fence.resource)), ...(lock === undefined ? [] : [get(lock)])];
}

export function toStanding(
  keys: Keys,
  fence: Fence,
  found: ReadonlyMap<string, KeyValue>,
): Standing {
  const lock = keyOfFence(fence);
  return {
    claim: found.get(keys.claim(fence.resource))?.value,
    isGone: lock !== undefined && found.get(lock)?.createRevision !== fence.token,
  };
}

/** Throws a FencedOutError when the fence is late, or its lock is gone. */
export function checkStanding(fence: Fence, { claim = "", isGone }: Standing): void {
  if (isAhead(claim, fence)) {
    throw new FencedOutError(fence, fenceIn(claim), { byEqual: isRival(claim, fence) });
  }
  if (isGone) throw new FencedOutError(fence, String(fence));
}

/** The fence still stands as it did. */
export function standsSo(keys: Keys, fence: Fence, { claim }: Standing): readonly Compare[] {
  const key = keys.claim(fence.resource);
  const lock = keyOfFence(fence);
  return [
    claim === undefined ? isAbsent(key) : { keys: key, target: "value", is: "=", than: claim },
    ...(lock === undefined ? [] : [isCreated(lock, fence.token)]),
  ];
}

/** Raises the resource's claim to the fence, where it is lower. */
export function raise(keys: Keys, fence: Fence, { claim = "", isGone }: Standing): readonly Put[] {
  const isRaised = isAhead(claim, fence) || claim === claimOf(fence);
  return isGone || isRaised ? [] : [put(keys.claim(fence.resource), claimOf(fence))];
}
