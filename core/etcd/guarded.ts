import { FencedOutError, FenceInvalidError, quote } from "../lock/errors.ts";
import type { Fence } from "../lock/fence.ts";
import { type Etcd, isCreated, type Op, type Put, type TxnAnswer } from "./etcd.ts";
import { keyOfFence } from "./names.ts";

/**
 * Carries the operations out, in one transaction with the check that the lock is still there: no later holder can
 * have come in between. What has conditions of its own is an operation "txn".
 *
 * Rejects with a FencedOutError, and has changed nothing, when the lock's key is gone; with a FenceInvalidError for a
 * fence that no lock in etcd has issued; with a RangeError for a put under the lock's name and "/", where its line is;
 * and as `txn` does. The lock has to be in the same cluster.
 */
export async function guardedWrite(
  etcd: Etcd,
  fence: Fence,
  ops: readonly Op[],
  signal?: AbortSignal,
): Promise<TxnAnswer> {
  const key = keyOfFence(fence);
  if (key === undefined) throw new FenceInvalidError("no lock in etcd has issued it");
  for (const put of putsOf(ops)) checkOutside(lineOf(key), put.key);
  const answer = await etcd.txn({ when: [isCreated(key, fence.token)], do: ops }, signal);
  if (!answer.succeeded) throw new FencedOutError(fence, String(fence));
  return answer;
}

/** The prefix under which the lock's own key stands, with those that wait for it. */
function lineOf(key: string): string {
  return key.slice(0, key.lastIndexOf("/") + 1);
}

/** What has no lease would stand in the line for ever, and nobody would get the lock any more. */
function checkOutside(line: string, key: string): void {
  if (!key.startsWith(line)) return;
  throw new RangeError(`key ${quote(key)} must not stand in the lock's line, under ${quote(line)}`);
}

function putsOf(ops: readonly Op[]): readonly Put[] {
  return ops.flatMap((op) => {
    if (op.op === "put") return [op];
    return op.op === "txn" ? putsOf([...op.txn.do, ...(op.txn.otherwise ?? [])]) : [];
  });
}
