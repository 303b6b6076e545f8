import type { Fence } from "../../core/lock/fence.ts";

export interface Sale {
  readonly orderId: string;

  /** The order's id where sales are recorded once, else one of its own. */
  readonly saleId: string;
}

/** What the shop's books say afterwards. */
export interface Books {
  readonly remaining: number;

  /** The lowest stock that was ever written. */
  readonly lowest: number;

  /** The order ids of all sales, with repetitions. */
  readonly sales: readonly string[];
}

/** The shop of the incident on one store: the lock and the stock as one would write them by hand. */
export interface Shop {
  /** One product with `stock` units and nothing sold, kept by hand or by the library's inventory. */
  open(stock: number, kept: "by-hand" | "by-inventory"): Promise<void>;

  /** Takes the lock if nobody has it or it has expired. */
  setIfAbsent(owner: string, ttl: number): Promise<boolean>;

  /** Deletes the lock, whoever has it. */
  remove(): Promise<void>;

  /** Deletes the lock if it is this owner's. */
  removeIfOwner(owner: string): Promise<void>;

  readStock(): Promise<number>;

  /** Makes earlier holders late before anything is read. Rejects with a FencedOutError. */
  claim(fence: Fence): Promise<void>;

  /**
   * Writes the stock and records the sale, in one transaction.
   *
   * With a fence the write is refused when a later holder has written, or claimed where `claimed` says so.
   */
  write(sale: Sale, stock: number, fence?: Fence, claimed?: boolean): Promise<Written>;

  /** Subtracts one and records the sale, in one transaction; where `ifEnough` says so only from stock that is there. */
  decrement(sale: Sale, ifEnough: boolean): Promise<Written | "sold-out">;

  books(): Promise<Books>;

  /** Removes all of it. */
  close(): Promise<void>;
}

/** `replayed`: a sale with this id is recorded already. `refused`: the fence is late. Neither changes anything. */
export type Written = "sold" | "replayed" | "refused";
