import { checkText, checkWhole } from "../lock/checks.ts";
import { checkFence, type Fence } from "../lock/fence.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import { type InventoryOptions, withEvents } from "./events.ts";
import {
  type Inventory,
  type LedgerEntry,
  operationConflict,
  type Reservation,
  type StockLevel,
  type StockOperations,
} from "./inventory.ts";
import {
  checkSku,
  MAX_BATCH_ORDERS,
  MAX_ID_BYTES,
  type OperationBackend,
  toOperation,
  toOperations,
} from "./operation.ts";
import { OperationBatcher } from "./operation-batcher.ts";

/** The contract that a store implements. All arguments are checked already. */
export interface InventoryBackend extends OperationBackend {
  get(sku: string): Promise<StockLevel | undefined>;
  list(page: StockPage): Promise<readonly StockLevel[]>;
  expire(sku: string): Promise<void>;
  history(sku: string, page: HistoryPage): Promise<readonly LedgerEntry[]>;
  reservations(sku: string, limit: number): Promise<readonly Reservation[]>;
  claim(fence: Fence): Promise<void>;
}

/** At most `limit` skus that start with `prefix`, all of them after `after`. Both may be empty. */
export interface StockPage {
  readonly prefix: string;
  readonly after: string;
  readonly limit: number;
}

/** At most `limit` entries, all of them before entry `before`. */
export interface HistoryPage {
  readonly limit: number;
  readonly before: number;
}

const LIST_OPTIONS = { prefix: true, after: true, limit: true } satisfies OptionNames<
  NonNullable<Parameters<Inventory["list"]>[0]>
>;
const HISTORY_OPTIONS = { limit: true, before: true } satisfies OptionNames<
  NonNullable<Parameters<Inventory["history"]>[1]>
>;
const RESERVATIONS_OPTIONS = { limit: true } satisfies OptionNames<
  NonNullable<Parameters<Inventory["reservations"]>[1]>
>;

/** Builds the public contract on a store's backend. */
export function createInventory(
  backend: InventoryBackend,
  { onEvent }: InventoryOptions,
): Inventory {
  const { decrement = MAX_BATCH_ORDERS, reserve } = backend.groupSizes ?? {};
  const decrements = new OperationBatcher(backend, decrement);
  const reservations = reserve && new OperationBatcher(backend, reserve);
  const inventory: Inventory = {
    ...createOperations(backend),

    decrement: async (change) => decrements.apply(toOperation("decrement", change), change.signal),

    ...(reservations && {
      reserve: async (change) => reservations.apply(toOperation("reserve", change), change.signal),
    }),

    async expire(sku) {
      checkSku(sku);
      await backend.expire(sku);
    },

    async list(options = {}) {
      checkOptionNames("inventory.list", options, LIST_OPTIONS);
      const { prefix = "", after = "", limit = 100 } = options;
      if (prefix !== "") checkText("prefix", prefix, MAX_ID_BYTES);
      if (after !== "") checkText("after", after, MAX_ID_BYTES);
      checkWhole("limit", limit, 1, 10_000);
      return backend.list({ prefix, after, limit });
    },

    async history(sku, options = {}) {
      checkSku(sku);
      checkOptionNames("inventory.history", options, HISTORY_OPTIONS);
      const { limit = 100, before = Number.MAX_SAFE_INTEGER } = options;
      checkWhole("limit", limit, 1, 10_000);
      checkWhole("before", before, 0, Number.MAX_SAFE_INTEGER);
      return backend.history(sku, { limit, before });
    },

    async reservations(sku, options = {}) {
      checkSku(sku);
      checkOptionNames("inventory.reservations", options, RESERVATIONS_OPTIONS);
      const { limit = 100 } = options;
      checkWhole("limit", limit, 1, 10_000);
      return backend.reservations(sku, limit);
    },

    async claim(fence) {
      checkFence(fence, fence?.resource);
      await backend.claim(fence);
    },
  };
  return withEvents(inventory, onEvent);
}

/** Builds the public contract on a store that applies batches only. */
export function createBatchInventory(
  backend: Omit<InventoryBackend, "apply">,
  options: InventoryOptions,
): Inventory {
  return createInventory({ ...backend, apply: asBatch(backend.applyMany) }, options);
}

/** Applies one operation as a batch. */
export function asBatch(applyMany: OperationBackend["applyMany"]): OperationBackend["apply"] {
  return async (operation, signal) => {
    const { sku, fence, operationId } = operation;
    const [result] = await applyMany({ sku, fence, operations: [operation] }, signal);
    if (!result || result.outcome === "conflict") throw operationConflict(operationId);
    const { outcome, remaining, replayed } = result;
    return { outcome, remaining, replayed };
  };
}

/** Builds the reads and changes alone; every decrement is a transaction of its own. */
export function createOperations(
  backend: Pick<InventoryBackend, "get" | "apply" | "applyMany">,
  { onEvent }: InventoryOptions = {},
): StockOperations {
  const apply = async (...[kind, change]: Parameters<typeof toOperation>) => {
    const operation = toOperation(kind, change);
    change.signal?.throwIfAborted();
    return backend.apply(operation, change.signal);
  };
  const operations: StockOperations = {
    async get(sku) {
      checkSku(sku);
      return backend.get(sku);
    },

    set: (change) => apply("set", change),
    restock: (change) => apply("restock", change),
    decrement: (change) => apply("decrement", change),
    reserve: (change) => apply("reserve", change),
    confirm: (change) => apply("confirm", change),
    cancel: (change) => apply("cancel", change),

    async decrementMany(batch) {
      const operations = toOperations(batch);
      const { sku, fence, signal } = batch;
      signal?.throwIfAborted();
      return backend.applyMany({ sku, fence, operations }, signal);
    },
  };
  return withEvents(operations, onEvent);
}
