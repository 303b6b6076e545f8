import { quote, UnknownOutcomeError } from "../lock/errors.ts";
import type { Backend } from "./backend.ts";
import { MOST_ORDERS } from "./check.ts";
import { type Answer, OperationConflictError, type OrderAnswer } from "./inventory.ts";
import type { Operation } from "./operation.ts";

/** A decrement that is still to be done. */
interface Waiting {
  readonly operation: Operation;
  readonly signal: AbortSignal | undefined;
  resolve(answer: Answer): void;
  reject(error: unknown): void;
}

/**
 * Decrements of one sku wait for one another in any case, for the lock on its row. Those that come while one
 * is under way go into the next transaction together: a busy sku is sold in batches, a quiet one at once.
 */
export class Together {
  readonly #backend: Backend;

  /** By sku and fence; there is a queue, empty or not, while a transaction is under way. */
  readonly #queues = new Map<string, Waiting[]>();

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  async decrement(operation: Operation, signal: AbortSignal | undefined): Promise<Answer> {
    signal?.throwIfAborted();
    const { promise, ...settle } = Promise.withResolvers<Answer>();
    const waiting = { operation, signal, ...settle };
    const onAbort = () => this.#giveUp(waiting);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      this.#join(waiting);
      return await promise;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  #join(waiting: Waiting): void {
    const key = keyOf(waiting);
    const queue = this.#queues.get(key);
    if (queue) queue.push(waiting);
    else void this.#serve(key, waiting);
  }

  async #serve(key: string, first: Waiting): Promise<void> {
    const queue: Waiting[] = [first];
    this.#queues.set(key, queue);
    while (queue.length > 0) await this.#do(queue.splice(0, MOST_ORDERS));
    this.#queues.delete(key);
  }

  async #do(group: readonly Waiting[]): Promise<void> {
    try {
      const answers = await this.#answers(group);
      group.forEach(({ resolve, reject, operation }, i) => {
        const answer = answers[i];
        if (!answer || answer.outcome === "conflict") {
          reject(new OperationConflictError(operation.operationId));
        } else {
          const { outcome, remaining, replayed } = answer;
          resolve({ outcome, remaining, replayed });
        }
      });
    } catch (error) {
      for (const { reject } of group) reject(error);
    }
  }

  async #answers(group: readonly Waiting[]): Promise<readonly (Answer | OrderAnswer)[]> {
    const [first] = group;
    if (!first) return [];
    const { sku, fence } = first.operation;
    if (group.length === 1) return [await this.#backend.apply(first.operation, first.signal)];
    const operations = group.map(({ operation }) => operation);
    return this.#backend.applyMany({ sku, fence, operations }, undefined);
  }

  /** What still waits is never done; what is under way may be. */
  #giveUp(waiting: Waiting): void {
    const queue = this.#queues.get(keyOf(waiting));
    const at = queue?.indexOf(waiting) ?? -1;
    if (at >= 0) {
      queue?.splice(at, 1);
      waiting.reject(waiting.signal?.reason);
      return;
    }
    const { operationId } = waiting.operation;
    const { address } = this.#backend;
    waiting.reject(
      new UnknownOutcomeError(
        address,
        `decrement ${quote(operationId)} was done`,
        waiting.signal?.reason,
      ),
    );
  }
}

function keyOf({ operation: { sku, fence } }: Waiting): string {
  return `${sku}\0${fence ?? ""}`;
}
