import type { Inventory } from "../../core/inventory/inventory.ts";

/** Sells one unit after another until its disposal. */
export function sellWithoutPause(stock: Inventory, sku: string): AsyncDisposable {
  let isStopped = false;
  const sell = async () => {
    for (let i = 0; !isStopped; i += 1) {
      await stock.decrement({ sku, quantity: 1, operationId: `${sku}/sale ${i}` });
    }
  };
  const selling = sell();
  return {
    async [Symbol.asyncDispose]() {
      isStopped = true;
      await selling;
    },
  };
}
