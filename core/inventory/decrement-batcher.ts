import { hasCode, quote, UnknownOutcomeError } from "../lock/errors.ts";
import { fenceOwner } from "../lock/fence.ts";
import { KeyedBatcher } from "../lock/keyed-batcher.ts";
import { type DecrementResult, operationConflict, type StockResult } from "./inventory.ts";
import { MAX_BATCH_ORDERS, type Operation, type OperationBackend } from "./operation.ts";

type Answer = StockResult | DecrementResult | { readonly error: unknown };

interface PendingDecrement {
  readonly operation: Operation;
  readonly signal: AbortSignal | undefined;
}

/** Groups concurrent decrements of one sku, which would wait for each other's row lock anyway. */
export class DecrementBatcher {
  readonly #backend: OperationBackend;

  /** By sku, fence and owner. */
  readonly #batcher: KeyedBatcher<PendingDecrement, Answer>;

  constructor(backend: OperationBackend) {
    this.#backend = backend;
    this.#batcher = new KeyedBatcher(MAX_BATCH_ORDERS, (group) => this.#apply(group));
  }

  async decrement(operation: Operation, signal: AbortSignal | undefined): Promise<StockResult> {
    signal?.throwIfAborted();
    const pending = { operation, signal };
    const { promise: aborted, reject } = Promise.withResolvers<never>();
    const onAbort = () => reject(this.#abort(pending));
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      const applied = this.#batcher.add(queueKey(operation), pending);
      const answer = await Promise.race([applied, aborted]);
      if ("error" in answer) throw answer.error;
      const { outcome, remaining, replayed } = answer;
      if (outcome === "conflict") throw operationConflict(operation.operationId);
      return { outcome, remaining, replayed };
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  async #apply(group: readonly PendingDecrement[]): Promise<readonly Answer[]> {
    const [first] = group;
    if (!first) return [];
    const { sku, fence } = first.operation;
    if (group.length === 1) return [await this.#backend.apply(first.operation, first.signal)];
    const operations = group.map(({ operation }) => operation);
    try {
      return await this.#backend.applyMany({ sku, fence, operations }, undefined);
    } catch (error) {
      if (!hasCode(error, "FENCED_OUT")) throw error;
      // A decrement that is on record keeps its result, whatever the fence: those around it do not count.
      const applyOne = ({ operation, signal }: PendingDecrement): Promise<Answer> =>
        this.#backend.apply(operation, signal).catch((error) => ({ error }));
      return Promise.all(group.map(applyOne));
    }
  }

  /** Returns the error of the aborted call: a queued decrement is cancelled; a sent one may still commit. */
  #abort(pending: PendingDecrement): unknown {
    const { operation, signal } = pending;
    if (this.#batcher.remove(queueKey(operation), pending)) return signal?.reason;
    const what = `decrement ${quote(operation.operationId)} was done`;
    return new UnknownOutcomeError(this.#backend.address, what, signal?.reason);
  }
}

/** Two lock stores may issue equal fences, so the key includes the owner: their holders never share a batch. */
function queueKey({ sku, fence }: Operation): string {
  return `${sku}\0${fence ?? ""}\0${fence ? fenceOwner(fence) : ""}`;
}
