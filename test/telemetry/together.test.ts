import { beforeEach, expect, test } from "vitest";
import type {
  Answer,
  Entry,
  Inventory,
  OrderAnswer,
  Stock,
} from "../../core/inventory/inventory.ts";
import { observed, type StockEvent } from "../../core/inventory/observed.ts";
import { type Telemetry, tellingToo, together } from "../../functions/telemetry/index.ts";

const told: string[] = [];

beforeEach(() => {
  told.length = 0;
});

const telemetry = (tell: (what: string) => void): Telemetry => ({
  lock: () => tell("lock"),
  stock: () => tell("stock"),
  runtime: {
    onEvent: () => tell("run"),
    around: { run: (_, body) => body(), step: (_, body) => body() },
  },
});

const failing = telemetry(() => {
  throw new Error("a fault of one of them");
});

test("what one of them throws does not keep the others from being told", () => {
  const both = together(
    failing,
    telemetry((what) => told.push(what)),
  );
  both.lock({ type: "busy", names: ["a"], waited: 0 });
  both.stock({ type: "refused", kind: "claim", lock: "sku/a", error: undefined });
  both.runtime.onEvent({ type: "replayed", runId: "r", key: "a" });
  const { onEvent } = tellingToo(both, failing.runtime.onEvent);
  onEvent({ type: "replayed", runId: "r", key: "b" });
  expect(told).toEqual(["lock", "stock", "run", "run"]);
});

const SOLD = { outcome: "applied", remaining: 1, replayed: false } as const;

/** An inventory of a user's own. */
class Shelf implements Inventory {
  readonly #answer: Answer = SOLD;

  async set(): Promise<Answer> {
    return this.#answer;
  }
  restock = this.set;
  decrement = this.set;
  reserve = this.set;
  confirm = this.set;
  cancel = this.set;

  async decrementMany(): Promise<readonly OrderAnswer[]> {
    return [{ ...this.#answer, operationId: "o" }];
  }
  async get(): Promise<Stock | undefined> {
    return { sku: "a", onHand: this.#answer.remaining, reserved: 0, sold: 0, supplied: 1 };
  }
  async history(): Promise<readonly Entry[]> {
    return this.#answer ? [] : [];
  }
  async expire(): Promise<void> {
    this.#answer;
  }
  async claim(): Promise<void> {
    this.#answer;
  }
}

test("an inventory that is an instance of a class can be observed", async () => {
  const events: StockEvent[] = [];
  const shelf = observed(new Shelf(), (event) => {
    events.push(event);
    throw new Error("a fault of the listener's own");
  });
  const change = { sku: "a", quantity: 1, operationId: "o" };
  expect(await shelf.set(change)).toEqual(SOLD);
  expect(await shelf.decrement(change)).toEqual(SOLD);
  expect(await shelf.reserve({ ...change, expiresIn: 1_000 })).toEqual(SOLD);
  expect(await shelf.decrementMany({ sku: "a", orders: [] })).toHaveLength(1);
  expect(await shelf.get("a")).toMatchObject({ onHand: 1 });
  expect(await shelf.history("a")).toEqual([]);
  await shelf.expire("a");
  expect(events.map(({ kind }) => kind)).toEqual(["set", "decrement", "reserve", "decrement"]);
  expect(shelf).not.toHaveProperty("within");
});
