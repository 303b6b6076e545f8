import { hasCode, quote, UnknownOutcomeError } from "../lock/errors.ts";
import { fenceOwner } from "../lock/fence.ts";
import { KeyedBatcher } from "../lock/keyed-batcher.ts";
import { after, LONGEST_CALL } from "../lock/time.ts";
import { type DecrementResult, operationConflict, type StockResult } from "./inventory.ts";
import { type Operation, type OperationBackend, queuedTooLong } from "./operation.ts";

type Answer = StockResult | DecrementResult | { readonly error: unknown };

interface PendingOperation {
  readonly operation: Operation;
  readonly signal: AbortSignal | undefined;
}

/** Groups concurrent operations of one kind and one sku, which would wait for each other's row lock anyway. */
export class OperationBatcher {
  readonly #backend: OperationBackend;

  /** By sku, fence and owner. */
  readonly #batcher: KeyedBatcher<PendingOperation, Answer>;

  /** `most` operations share a transaction. */
  constructor(backend: OperationBackend, most: number) {
    this.#backend = backend;
    this.#batcher = new KeyedBatcher(most, (group) => this.#apply(group));
  }

  async apply(operation: Operation, signal: AbortSignal | undefined): Promise<StockResult> {
    signal?.throwIfAborted();
    const pending = { operation, signal };
    const { promise: ended, reject } = Promise.withResolvers<never>();
    const onAbort = () => reject(this.#abort(pending));
    signal?.addEventListener("abort", onAbort, { once: true });
    const cancel = after(LONGEST_CALL, () => {
      if (this.#remove(pending)) reject(queuedTooLong(this.#backend.address, operation.sku));
    });
    try {
      const applied = this.#batcher.add(queueKey(operation), pending);
      const answer = await Promise.race([applied, ended]);
      if ("error" in answer) throw answer.error;
      const { outcome, remaining, replayed } = answer;
      if (outcome === "conflict") throw operationConflict(operation.operationId);
      return { outcome, remaining, replayed };
    } finally {
      cancel();
      signal?.removeEventListener("abort", onAbort);
    }
  }

  async #apply(group: readonly PendingOperation[]): Promise<readonly Answer[]> {
    const [first] = group;
    if (!first) return [];
    const { sku, fence } = first.operation;
    if (group.length === 1) return [await this.#backend.apply(first.operation, first.signal)];
    const operations = group.map(({ operation }) => operation);
    try {
      return await this.#backend.applyMany({ sku, fence, operations }, undefined);
    } catch (error) {
      if (!hasCode(error, "FENCED_OUT")) throw error;
      // An operation that is on record keeps its result, whatever the fence: those around it do not count.
      const applyOne = ({ operation, signal }: PendingOperation): Promise<Answer> =>
        this.#backend.apply(operation, signal).catch((error) => ({ error }));
      return Promise.all(group.map(applyOne));
    }
  }

  /** Returns the error of the aborted call: a queued operation is cancelled; a sent one may still commit. */
  #abort(pending: PendingOperation): unknown {
    const { operation, signal } = pending;
    if (this.#remove(pending)) return signal?.reason;
    const what = `${operation.kind} ${quote(operation.operationId)} was done`;
    return new UnknownOutcomeError(this.#backend.address, what, signal?.reason);
  }

  /** Returns false if the operation is under way. */
  #remove(pending: PendingOperation): boolean {
    return this.#batcher.remove(queueKey(pending.operation), pending);
  }
}

/** Two lock stores may issue equal fences, so the key includes the owner: their holders never share a batch. */
function queueKey({ sku, fence }: Operation): string {
  return `${sku}\0${fence ?? ""}\0${fence ? fenceOwner(fence) : ""}`;
}
