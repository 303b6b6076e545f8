import { checkFence, type Fence } from "../lock/fence.ts";
import { checkOrders, checkPage, checkSku, toOperation } from "./check.ts";
import {
  type Answer,
  type Entry,
  type Inventory,
  OperationConflictError,
  type OrderAnswer,
  type Stock,
} from "./inventory.ts";
import type { Batch, Operation } from "./operation.ts";
import { Together } from "./together.ts";

/** What a database implements. All that it is given is checked already. */
export interface Backend {
  /** Where it is, for messages: never with a secret. */
  readonly address: string;

  get(sku: string): Promise<Stock | undefined>;

  /** Does the operation once, however often this is called. */
  apply(operation: Operation, signal: AbortSignal | undefined): Promise<Answer>;

  /** All of a batch of decrements in one transaction. */
  applyMany(batch: Batch, signal: AbortSignal | undefined): Promise<readonly OrderAnswer[]>;

  expire(sku: string): Promise<void>;
  history(sku: string, page: Page): Promise<readonly Entry[]>;
  claim(fence: Fence): Promise<void>;
}

/** At most `limit` entries, all of them before entry `before`. */
export interface Page {
  readonly limit: number;
  readonly before: number;
}

/** The public contract on top of any database. */
export function inventoryOn(backend: Backend): Inventory {
  const together = new Together(backend);
  return {
    ...changesOn(backend),

    decrement: async (change) =>
      together.decrement(toOperation("decrement", change), change.signal),

    async expire(sku) {
      checkSku(sku);
      await backend.expire(sku);
    },

    async history(sku, { limit = 100, before = Number.MAX_SAFE_INTEGER } = {}) {
      checkSku(sku);
      checkPage(limit, before);
      return backend.history(sku, { limit, before });
    },

    async claim(fence) {
      checkFence(fence, fence?.resource);
      await backend.claim(fence);
    },
  };
}

/** The part of it that changes stock, each change for itself. */
export function changesOn(
  backend: Pick<Backend, "get" | "apply" | "applyMany">,
): Omit<Inventory, "expire" | "history" | "claim"> {
  return {
    async get(sku) {
      checkSku(sku);
      return backend.get(sku);
    },

    set: async (change) => backend.apply(toOperation("set", change), change.signal),
    restock: async (change) => backend.apply(toOperation("restock", change), change.signal),
    decrement: async (change) => backend.apply(toOperation("decrement", change), change.signal),
    reserve: async (change) => backend.apply(toOperation("reserve", change), change.signal),
    confirm: async (change) => backend.apply(toOperation("confirm", change), change.signal),
    cancel: async (change) => backend.apply(toOperation("cancel", change), change.signal),

    async decrementMany({ sku, orders, fence, signal }) {
      checkOrders(orders);
      const operations = orders.map((order) =>
        toOperation("decrement", { ...order, sku, fence, signal }),
      );
      return backend.applyMany({ sku, fence, operations }, signal);
    },
  };
}

/** `apply` for a database that does all in batches. Rejects with an OperationConflictError. */
export async function applyAlone(
  operation: Operation,
  applyMany: (batch: Batch) => Promise<readonly OrderAnswer[]>,
): Promise<Answer> {
  const { sku, fence, operationId } = operation;
  const [answer] = await applyMany({ sku, fence, operations: [operation] });
  if (!answer || answer.outcome === "conflict") throw new OperationConflictError(operationId);
  const { outcome, remaining, replayed } = answer;
  return { outcome, remaining, replayed };
}
