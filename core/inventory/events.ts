import type { Fence } from "../lock/fence.ts";
import { listener } from "../lock/listener.ts";
import {
  type DecrementResult,
  type Inventory,
  lockOf,
  type StockChange,
  type StockOperations,
  type StockResult,
} from "./inventory.ts";
import { checkArgument, type OperationKind } from "./operation.ts";

/** The result or the error of a change. Within a caller's transaction the event precedes the commit. */
export type StockEvent = StockEventBase &
  (
    | ({ readonly type: "answered" } & Pick<DecrementResult, "outcome" | "remaining" | "replayed">)
    | { readonly type: "failed"; readonly error: unknown }
  );

export type StockListener = (event: StockEvent) => void;

export interface InventoryOptions {
  /** Receives the result or the error of every change. An error that the listener throws is ignored. */
  readonly onEvent?: StockListener | undefined;
}

interface StockEventBase {
  readonly kind: OperationKind | "claim";

  /** The name of the lock that orders this work. */
  readonly lock: string;

  /** Undefined for a claim, and for a batch that failed as a whole. */
  readonly operationId?: string;

  /** The fence of the change, as text. */
  readonly fence?: string;
}

/** An option of stores that keep stock. */
export interface StockEventOptions {
  /** Receives the result or the error of every change of stock. Errors that it throws are ignored. */
  readonly onStockEvent?: StockListener | undefined;
}

/** Wraps the changes, and `claim` if present, so that `onEvent` receives their results and errors. */
export function withEvents<T extends StockOperations & Partial<Pick<Inventory, "claim">>>(
  inventory: T,
  onEvent: StockListener | undefined,
): T {
  if (!onEvent) return inventory;
  const emit = listener(onEvent);
  const reporting = <C extends StockChange>(
    kind: OperationKind,
    change: (args: C) => Promise<StockResult>,
  ) => {
    return async (args: C) => {
      checkArgument(kind, args);
      const { sku, operationId, fence } = args;
      const base = { kind, lock: lockOf(sku), operationId, ...fenceText(fence) };
      const result = await emitErrors(change(args), base, emit);
      emit({ type: "answered", ...base, ...toFields(result) });
      return result;
    };
  };
  const { claim } = inventory;
  return {
    ...inventory,
    set: reporting("set", inventory.set),
    restock: reporting("restock", inventory.restock),
    decrement: reporting("decrement", inventory.decrement),
    reserve: reporting("reserve", inventory.reserve),
    confirm: reporting("confirm", inventory.confirm),
    cancel: reporting("cancel", inventory.cancel),

    async decrementMany(batch: Parameters<StockOperations["decrementMany"]>[0]) {
      checkArgument("decrementMany", batch);
      const lock = lockOf(batch.sku);
      const base = { kind: "decrement", lock, ...fenceText(batch.fence) } as const;
      const results = await emitErrors(inventory.decrementMany(batch), base, emit);
      for (const result of results) {
        const { operationId } = result;
        emit({ type: "answered", ...base, operationId, ...toFields(result) });
      }
      return results;
    },

    ...(claim && {
      async claim(fence: Fence) {
        const base = { kind: "claim", lock: fence?.resource, ...fenceText(fence) } as const;
        await emitErrors(claim(fence), base, emit);
      },
    }),
  };
}

function toFields({ outcome, remaining, replayed }: Omit<DecrementResult, "operationId">) {
  return { outcome, remaining, replayed };
}

function fenceText(fence: Fence | undefined): Pick<StockEventBase, "fence"> {
  return fence === undefined ? {} : { fence: String(fence) };
}

async function emitErrors<T>(
  change: Promise<T>,
  base: StockEventBase,
  emit: StockListener,
): Promise<T> {
  try {
    return await change;
  } catch (error) {
    emit({ type: "failed", ...base, error });
    throw error;
  }
}
