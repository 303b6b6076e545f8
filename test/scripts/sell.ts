import { randomUUID } from "node:crypto";
import { stockLock } from "../../core/inventory/inventory.ts";
import { hasCode, type LockError } from "../../core/lock/errors.ts";
import type { Lock } from "../../core/lock/lock.ts";
import { put } from "../../core/stores/etcd/client/etcd.ts";
import type { EtcdStore } from "../../core/stores/etcd/store.ts";
import { open } from "../../infra/open.ts";
import { pause } from "../support/until.ts";

/**
 * sell URL SKU CONTENDERS: each contender, with a client of its own, sells one unit at a time under the lock until
 * SIGTERM. Prints a line for each acknowledged sale, and one with etcd's revisions before and after the sale if the
 * lock was certainly held.
 */
const [url = "", sku = "", contenders = ""] = process.argv.slice(2);
let over = false;
process.once("SIGTERM", () => {
  over = true;
});

await Promise.all(Array.from({ length: Number(contenders) }, contend));

async function contend(): Promise<void> {
  const opened = await open(url);
  while (!over) {
    const lock = await retried(() =>
      opened.locks.lock(stockLock(sku), { ttl: 5_000, wait: 60_000 }),
    );
    if (lock) await sell(opened, lock).catch(onlyRetryable);
    await lock?.unlock().catch(onlyRetryable);
  }
  await opened.close();
}

async function sell({ etcd, inventory }: EtcdStore, lock: Lock): Promise<void> {
  const mark = async () => (await etcd.txn({ when: [], do: [put(`${sku}-mark`, "")] })).revision;
  const from = await mark();
  const operationId = randomUUID();
  const change = { sku, quantity: 1, operationId, fence: lock.fence };
  const answer = await inventory.decrement(change);
  process.stdout.write(`${JSON.stringify({ operationId, outcome: answer.outcome })}\n`);
  const to = await mark();
  lock.assertHeld();
  process.stdout.write(`${JSON.stringify({ from: `${from}`, to: `${to}` })}\n`);
}

async function retried<T>(call: () => Promise<T>): Promise<T | undefined> {
  try {
    return await call();
  } catch (error) {
    onlyRetryable(error);
    await pause(50);
    return undefined;
  }
}

/** Rethrows errors that the death of a leader does not explain. */
function onlyRetryable(error: unknown): void {
  const expected =
    (error as Partial<LockError>).retryable || hasCode(error, "LOCK_LOST", "FENCED_OUT");
  if (!expected) throw error;
}
