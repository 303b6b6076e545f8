/** The sku of the plain UPDATE and of `decrementMany`, and the one of the orders. */
export const SKU = "teapot";
export const ORDERED_SKU = "ordered teapot";

/** The orders of one `decrementMany`. */
export const BATCH = 200;

export const SELL_ONE = `UPDATE hot SET quantity = quantity - 1 WHERE sku = '${SKU}' AND quantity >= 1`;

/** Seals the fence for the processes. */
export const SECRET = "the secret of the benchmark's fence";

/** What a process is told. */
export interface Sale {
  /** The plain UPDATE of one row, `decrementMany`, or what `lockstep orders fulfil` does. */
  readonly way: "plain" | "decrementMany" | "fulfil";
  readonly millis: number;
}
