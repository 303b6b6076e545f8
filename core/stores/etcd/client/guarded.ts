import { quote } from "../../../lock/errors.ts";
import type { Fence } from "../../../lock/fence.ts";
import { FencedOutError, FenceInvalidError } from "../../../lock/fence.ts";
import { type Etcd, isCreated, type Put, type TxnAnswer, type TxnOp } from "./etcd.ts";
import { keyOfFence } from "./names.ts";

/**
 * Carries operations out, in one transaction with the check that the lock is still held, so that no later holder can come
 * in between. Use an operation "txn" for conditions of your own.
 *
 * Rejects with a FencedOutError, and changes nothing, when the lock's key is gone; with a FenceInvalidError for a fence that
 * was not issued by a lock in etcd; with a RangeError for a put under the lock's name and "/", which is its queue; and as
 * `txn` does. The lock must be in the same cluster.
 */
export async function guardedWrite(
  etcd: Etcd,
  fence: Fence,
  ops: readonly TxnOp[],
  signal?: AbortSignal,
): Promise<TxnAnswer> {
  const key = keyOfFence(fence);
  if (key === undefined) throw new FenceInvalidError("no lock in etcd has issued it");
  for (const put of putsOf(ops)) checkOutside(queuePrefixOf(key), put.key);
  const answer = await etcd.txn({ when: [isCreated(key, fence.token)], do: ops }, signal);
  if (!answer.succeeded) throw new FencedOutError(fence, String(fence));
  return answer;
}

/** The prefix of the lock's key and of its waiters' keys. */
function queuePrefixOf(key: string): string {
  return key.slice(0, key.lastIndexOf("/") + 1);
}

/** Throws for a key in the queue: a key without a lease would block the lock for ever. */
function checkOutside(queue: string, key: string): void {
  if (!key.startsWith(queue)) return;
  throw new RangeError(`key ${quote(key)} must not be in the lock's queue, under ${quote(queue)}`);
}

function putsOf(ops: readonly TxnOp[]): readonly Put[] {
  return ops.flatMap((op) => {
    if (op.op === "put") return [op];
    return op.op === "txn" ? putsOf([...op.txn.do, ...(op.txn.otherwise ?? [])]) : [];
  });
}
