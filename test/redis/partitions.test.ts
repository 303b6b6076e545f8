import { expect, test } from "vitest";
import { stockLock } from "../../core/inventory/inventory.ts";
import { Partitions, partitionedStock } from "../../core/stores/redis/partitions.ts";

test.each(["teapot", "sku/teapot", "sku/sku/teapot", "{tea}/pot"])(
  "the stock of %s is in the partition of its lock",
  async (sku) => {
    const parts = Partitions.make(64, (part) => part);
    const backend = parts.map((address) => ({ address, get: async () => address }));
    const stock = partitionedStock(backend as never);
    expect(await stock.get(sku)).toBe(parts.of(stockLock(sku)));
  },
);
