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

/** A hand-written lock. */
export interface HandLock {
  /** Takes the lock if it is free or has expired. */
  setIfAbsent(owner: string, ttl: number): Promise<boolean>;

  /** Deletes the lock of any owner. */
  remove(): Promise<void>;

  /** Deletes the lock if this owner holds it. */
  removeIfOwner(owner: string): Promise<void>;

  /** The lock of older guides, in Redis alone. */
  readonly setnx?: SetnxLock | undefined;
}

/** The shop of the incident on one store, with a hand-written lock and hand-written stock. */
export interface Shop extends HandLock {
  /** Creates a product with `stock` units, managed by hand or by the library's inventory. */
  open(stock: number, keeper: "by-hand" | "by-inventory"): Promise<void>;

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

  /** The stock as a counter, in Redis alone. */
  readonly counter?: StockCounter;

  /** The stock as a row, in SQL alone. */
  readonly row?: StockRow;

  totals(): Promise<ShopTotals>;

  /** Deletes the shop's data. */
  close(): Promise<void>;
}

/** A lock that is taken first, and gets its expiry later. */
export interface SetnxLock {
  /** Takes the lock if it is free, without an expiry. */
  setnx(owner: string): Promise<boolean>;

  /** Gives the lock an expiry. */
  expire(ttl: number): Promise<void>;

  /** Resolves to the owner of a lock that has no expiry. */
  ownerWithoutExpiry(): Promise<string | undefined>;
}

export interface StockCounter {
  /** Subtracts a unit, also below zero. Resolves to the stock. */
  decr(): Promise<number>;
  incr(): Promise<void>;

  /** Records a sale that has left this stock, and nothing else. */
  record(sale: Sale, stock: number): Promise<void>;
}

export interface StockRow {
  readVersion(): Promise<{ readonly stock: number; readonly version: string }>;

  /** Writes the stock and records the sale, in one transaction. Refused if the version is another one by now. */
  writeVersion(sale: Sale, stock: number, version: string): Promise<WriteResult>;

  /** Reads the stock under the lock of its row, calls `work`, and sells a unit if one is left, in one transaction. */
  sellUnderRowLock(
    sale: Sale,
    work: (stock: number) => Promise<void>,
  ): Promise<WriteResult | "sold-out">;
}

/** `replayed`: the sale is already recorded. `refused`: the fence or the version is late. Neither changes the stock. */
export type WriteResult = "sold" | "replayed" | "refused";
