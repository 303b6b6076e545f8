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
import type { Fence } from "../../lock/fence.ts";
import type { Keys } from "./keys.ts";

/** How a fence stands. */
export interface Standing {
  /** The highest fence that the resource has seen, as text. */
  readonly claim: string | undefined;

  /** The fence was issued by a lock in etcd that is there no more. */
  readonly isGone: boolean;
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
  const text = String(fence);
  if (claim > text) throw new FencedOutError(fence, claim);
  if (isGone) throw new FencedOutError(fence, text);
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
  const text = String(fence);
  return isGone || claim >= text ? [] : [put(keys.claim(fence.resource), text)];
}
