import { expect, onTestFinished, test, vi } from "vitest";
import { sleep } from "../../core/lock/abort.ts";
import type { Dynamodb } from "../../core/stores/dynamodb/client/dynamodb.ts";
import type { Item } from "../../core/stores/dynamodb/client/items.ts";
import { dynamodbInventory } from "../../core/stores/dynamodb/inventory/index.ts";
import { describeSlowStock, sku } from "../conformance/slow-stock.ts";

const pk = `stock/${sku}`;

const UNITS: Item = { pk, sk: "units", onHand: "9", reserved: "90", sold: "0", supplied: "99" };

/** Opens stock whose server takes `span` for each answer, accepts every write, and has so many expired reservations. */
function stockOn(span: number, expired = 0) {
  let left = expired;
  const dynamodb: Pick<Dynamodb, "address" | "read" | "write" | "query"> = {
    address: "table shop of dynamodb",
    async read(keys, signal) {
      await sleep(span, signal);
      const items = keys.map(({ sk }) => (sk === "units" ? UNITS : undefined));
      return { items, time: Date.now() };
    },
    async write(writes, signal) {
      await sleep(span, signal);
      left -= writes.filter((write) => "key" in write && !write.update).length;
      return { done: true, failed: [], items: [] };
    },
    async *query({ limit, signal }) {
      await sleep(span, signal);
      const one = (i: number): Item => ({ pk, sk: `reservation/1/${i}`, quantity: "1" });
      const items = Array.from({ length: Math.min(left, limit) }, (_, i) => one(i));
      yield { items, time: Date.now() };
    },
  };
  return { stock: dynamodbInventory(dynamodb as Dynamodb), left: () => left };
}

describeSlowStock("DynamoDB", stockOn, 900);

test.each(["decrement", "reserve"] as const)(
  "calls of %s wait for each other no longer than 10 s when nothing answers",
  async (kind) => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const { stock } = stockOn(Number.POSITIVE_INFINITY);
    let ended = 0;
    const calls = Array.from({ length: 500 }, async (_, i) => {
      const change = { sku, quantity: 1, operationId: `${i}`, expiresIn: "1m" } as const;
      await expect(stock[kind](change)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      ended += 1;
    });
    await vi.advanceTimersByTimeAsync(21_000);
    expect(ended).toBe(500);
    await Promise.all(calls);
  },
);
