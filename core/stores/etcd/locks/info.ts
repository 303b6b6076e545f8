import { quote } from "../../../lock/errors.ts";
import { formatFence } from "../../../lock/fence.ts";
import { describeLock } from "../../../lock/holder.ts";
import type { LockInfo } from "../../../lock/lock.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import type { Etcd, KeyValue, LeaseId, OpAnswer, Seconds } from "../client/etcd.ts";
import { hex } from "./lease.ts";

/** Repeats a read over a new connection when an attempt has taken too long. */
export function readLocks<T>(etcd: Etcd, once: (limit: AbortSignal) => Promise<T>): Promise<T> {
  return retryUntilKnown(etcd.address, "locks were read", undefined, once);
}

/** Reads how long a lease has left; undefined if the lease is gone. */
export async function readTimeLeft(etcd: Etcd, lease: LeaseId): Promise<Seconds | undefined> {
  const read = async (limit: AbortSignal) => ({ left: await etcd.timeToLive(lease, limit) });
  return (await readLocks(etcd, read)).left;
}

/** The value of the generation's key; 0 when the key does not exist. */
export function toGeneration(read: Pick<OpAnswer, "kvs"> | undefined): number {
  return Number(read?.kvs[0]?.value ?? 0);
}

interface FoundQueue {
  readonly name: string;
  readonly holder: KeyValue | undefined;
  readonly waiters: number;

  /** How long the holder's lease has left; undefined if the lease is gone. */
  readonly left: Seconds | undefined;
  readonly generation: number;
}

export function toInfo({ name, holder, waiters, left, generation }: FoundQueue): LockInfo {
  // A key without a lease holds the lock until somebody removes the key.
  if (!holder || (left === undefined && holder.lease !== 0n)) {
    const expiresIn = undefined;
    return describeLock({ name, holder: undefined, expiresIn, fence: undefined, waiters: 0 });
  }
  return describeLock({
    name,
    holder: textOf(holder),
    expiresIn: left === undefined ? undefined : left * 1_000,
    fence: formatFence(generation, holder.createRevision),
    waiters,
  });
}

/** The description that a holder or waiter gives of itself. The entries of Go's clients are empty. */
export function textOf({ key, value, lease }: KeyValue): string {
  if (lease === 0n) return `key ${quote(key)} without a lease`;
  return value || `lease ${hex(lease)}`;
}
