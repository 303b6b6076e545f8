import type { Fence } from "../../core/lock/fence.ts";

export interface Sale {
  readonly orderId: string;

  /** The order's id if the strategy records sales once, otherwise a random id. */
  readonly saleId: string;
}

/** The recorded result of a sale. */
export interface ShopTotals {
  readonly remaining: number;

  /** The lowest stock ever written. */
  readonly lowest: number;

  /** The order ids of all sales, duplicates included. */
  readonly sales: readonly string[];
}

/** The shop of the incident on one store, with a hand-written lock and hand-written stock. */
export interface Shop {
  /** Creates a product with `stock` units, managed by hand or by the library's inventory. */
  open(stock: number, keeper: "by-hand" | "by-inventory"): Promise<void>;

  /** Takes the lock if it is free or has expired. */
  setIfAbsent(owner: string, ttl: number): Promise<boolean>;

  /** Deletes the lock of any owner. */
  remove(): Promise<void>;

  /** Deletes the lock if this owner holds it. */
  removeIfOwner(owner: string): Promise<void>;

  readStock(): Promise<number>;

  /** Claims the fence before the first read. Rejects with a FencedOutError if it is late. */
  claim(fence: Fence): Promise<void>;

  /**
   * Writes the stock and records the sale, in one transaction.
   *
   * With a fence, the write is refused if a later holder has written or, with `claimed`, has claimed.
   */
  write(sale: Sale, stock: number, fence?: Fence, claimed?: boolean): Promise<WriteResult>;

  /** Subtracts a unit and records the sale, in one transaction. With `ifEnough`, only if a unit is left. */
  decrement(sale: Sale, ifEnough: boolean): Promise<WriteResult | "sold-out">;

  totals(): Promise<ShopTotals>;

  /** Deletes the shop's data. */
  close(): Promise<void>;
}

/** `replayed`: the sale is already recorded. `refused`: the fence is late. Neither changes the stock. */
export type WriteResult = "sold" | "replayed" | "refused";
