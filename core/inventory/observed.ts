import type { Fence } from "../lock/fence.ts";
import { listener } from "../lock/listener.ts";
import {
  type Change,
  type Inventory,
  type Kind,
  type OrderAnswer,
  stockLock,
} from "./inventory.ts";
import type { InventoryWithin, SqlInventory } from "./sql.ts";

/** What becomes of a change of stock. What is done within a transaction is told before that is committed. */
export type StockEvent = About &
  (
    | ({ readonly type: "answered" } & Pick<OrderAnswer, "outcome" | "remaining" | "replayed">)
    | { readonly type: "refused"; readonly error: unknown }
  );

export type StockListener = (event: StockEvent) => void;

interface About {
  readonly kind: Exclude<Kind, "expire"> | "claim";

  /** The name of the lock that orders this work. */
  readonly lock: string;

  /** Undefined for a claim, and for a batch that was refused as a whole. */
  readonly operationId?: string;

  /** What it was presented under. */
  readonly fence?: string;
}

/** The same inventory; `onEvent` is told of everything that comes of its changes. What it throws is lost. */
export function observed(inventory: SqlInventory, onEvent: StockListener): SqlInventory;
export function observed(inventory: Inventory, onEvent: StockListener): Inventory;
export function observed(
  inventory: Inventory & Partial<SqlInventory>,
  onEvent: StockListener,
): Inventory {
  const tell = listener(onEvent);
  return {
    ...observedChanges(inventory, tell),
    expire: (sku) => inventory.expire(sku),
    history: (...given) => inventory.history(...given),
    claim: async (fence) => {
      const about = { kind: "claim", lock: fence?.resource, ...presented(fence) } as const;
      await refusals(inventory.claim(fence), about, tell);
    },
    ...(inventory.within && {
      within: (tx: Tx) => observedChanges((inventory as SqlInventory).within(tx), tell),
    }),
  };
}

type Tx = Parameters<SqlInventory["within"]>[0];

function observedChanges(inventory: InventoryWithin, onEvent: StockListener): InventoryWithin {
  const observing = <C extends Change>(
    kind: About["kind"],
    change: (given: C) => Promise<Told>,
  ) => {
    return async (given: C) => {
      const { sku, operationId, fence } = given;
      const about = { kind, lock: stockLock(sku), operationId, ...presented(fence) };
      const answer = await refusals(change(given), about, onEvent);
      onEvent({ type: "answered", ...about, ...told(answer) });
      return answer;
    };
  };
  return {
    get: (sku) => inventory.get(sku),
    set: observing("set", (change) => inventory.set(change)),
    restock: observing("restock", (change) => inventory.restock(change)),
    decrement: observing("decrement", (change) => inventory.decrement(change)),
    reserve: observing("reserve", (change) => inventory.reserve(change)),
    confirm: observing("confirm", (change) => inventory.confirm(change)),
    cancel: observing("cancel", (change) => inventory.cancel(change)),

    async decrementMany(batch) {
      const about = {
        kind: "decrement",
        lock: stockLock(batch.sku),
        ...presented(batch.fence),
      } as const;
      const answers = await refusals(inventory.decrementMany(batch), about, onEvent);
      for (const answer of answers) {
        const { operationId } = answer;
        onEvent({ type: "answered", ...about, operationId, ...told(answer) });
      }
      return answers;
    },
  };
}

type Told = Awaited<ReturnType<Inventory["set"]>>;

function told({ outcome, remaining, replayed }: Omit<OrderAnswer, "operationId">) {
  return { outcome, remaining, replayed };
}

function presented(fence: Fence | undefined): Pick<About, "fence"> {
  return fence === undefined ? {} : { fence: String(fence) };
}

async function refusals<T>(change: Promise<T>, about: About, onEvent: StockListener): Promise<T> {
  try {
    return await change;
  } catch (error) {
    onEvent({ type: "refused", ...about, error });
    throw error;
  }
}
