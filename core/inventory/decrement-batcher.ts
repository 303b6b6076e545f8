import { quote, UnknownOutcomeError } from "../lock/errors.ts";
import { fenceOwner } from "../lock/fence.ts";
import { type DecrementResult, operationConflict, type StockResult } from "./inventory.ts";
import { MAX_BATCH_ORDERS, type Operation, type OperationBackend } from "./operation.ts";

interface PendingDecrement {
  readonly operation: Operation;
  readonly signal: AbortSignal | undefined;
  resolve(result: StockResult): void;
  reject(error: unknown): void;
}

/**
 * Groups concurrent decrements of one sku, which would wait for each other's row lock anyway. Decrements that
 * arrive during a transaction share the next one: a busy sku is sold in batches, a quiet one without delay.
 */
export class DecrementBatcher {
  readonly #backend: OperationBackend;

  /** By sku, fence and owner. A queue, possibly empty, exists while a transaction runs. */
  readonly #queues = new Map<string, PendingDecrement[]>();

  constructor(backend: OperationBackend) {
    this.#backend = backend;
  }

  async decrement(operation: Operation, signal: AbortSignal | undefined): Promise<StockResult> {
    signal?.throwIfAborted();
    const { promise, ...settle } = Promise.withResolvers<StockResult>();
    const pending = { operation, signal, ...settle };
    const onAbort = () => this.#abort(pending);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      this.#enqueue(pending);
      return await promise;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  #enqueue(pending: PendingDecrement): void {
    const key = queueKey(pending);
    const queue = this.#queues.get(key);
    if (queue) queue.push(pending);
    else void this.#drain(key, pending);
  }

  async #drain(key: string, first: PendingDecrement): Promise<void> {
    const queue: PendingDecrement[] = [first];
    this.#queues.set(key, queue);
    while (queue.length > 0) await this.#settle(queue.splice(0, MAX_BATCH_ORDERS));
    this.#queues.delete(key);
  }

  async #settle(group: readonly PendingDecrement[]): Promise<void> {
    try {
      const results = await this.#apply(group);
      group.forEach(({ resolve, reject, operation }, i) => {
        const result = results[i];
        if (!result || result.outcome === "conflict") {
          reject(operationConflict(operation.operationId));
        } else {
          const { outcome, remaining, replayed } = result;
          resolve({ outcome, remaining, replayed });
        }
      });
    } catch (error) {
      for (const { reject } of group) reject(error);
    }
  }

  async #apply(
    group: readonly PendingDecrement[],
  ): Promise<readonly (StockResult | DecrementResult)[]> {
    const [first] = group;
    if (!first) return [];
    const { sku, fence } = first.operation;
    if (group.length === 1) return [await this.#backend.apply(first.operation, first.signal)];
    const operations = group.map(({ operation }) => operation);
    return this.#backend.applyMany({ sku, fence, operations }, undefined);
  }

  /** A queued decrement is cancelled; a sent one may still commit. */
  #abort(pending: PendingDecrement): void {
    const queue = this.#queues.get(queueKey(pending));
    const at = queue?.indexOf(pending) ?? -1;
    if (at >= 0) {
      queue?.splice(at, 1);
      pending.reject(pending.signal?.reason);
      return;
    }
    const what = `decrement ${quote(pending.operation.operationId)} was done`;
    pending.reject(new UnknownOutcomeError(this.#backend.address, what, pending.signal?.reason));
  }
}

/** Two lock stores may issue equal fences, so the key includes the owner: their holders never share a batch. */
function queueKey({ operation: { sku, fence } }: PendingDecrement): string {
  return `${sku}\0${fence ?? ""}\0${fence ? fenceOwner(fence) : ""}`;
}
