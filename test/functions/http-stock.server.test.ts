import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sealFence } from "../../core/lock/fence.ts";
import { type Said, serving } from "../support/http.ts";
import {
  newKey,
  newSku,
  openBeforeTests,
  opened,
  SECRET,
  serve,
  testSecrecy,
} from "../support/http-app.ts";

openBeforeTests();

describe("a change of stock", () => {
  test("is applied once per key, and its repetition gets the same response", async () => {
    const { ask, log } = await serve();
    const sku = await newSku();
    const key = newKey();
    const first = await ask("POST", `/stock/${sku}/decrement`, { key, body: { quantity: 3 } });
    expect(first).toMatchObject({ status: 200, body: { sku, operationId: key, remaining: 7 } });
    expect(first.headers.get("idempotent-replayed")).toBeNull();
    const again = await ask("POST", `/stock/${sku}/decrement`, { key, body: { quantity: 3 } });
    expect(again).toMatchObject({ status: 200, text: first.text });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    const quoted = { key: `"${key}"`, body: { quantity: 3 } };
    expect((await ask("POST", `/stock/${sku}/decrement`, quoted)).text).toBe(first.text);
    expect((await ask("GET", `/stock/${sku}`)).body).toMatchObject({ onHand: 7, sold: 3 });
    expect(log[0]).toMatchObject({
      ...{ operation: "decrementStock", method: "POST", status: 200, principal: "shop" },
      ...{ sku, operationId: key, replayed: false, path: `/stock/${sku}/decrement` },
    });
  });

  test("is applied once when it is sent twenty times at once", async () => {
    const { ask } = await serve();
    const sku = await newSku();
    const key = newKey();
    const send = () => ask("POST", `/stock/${sku}/decrement`, { key, body: { quantity: 2 } });
    const answers = await Promise.all(Array.from({ length: 20 }, send));
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    const isReplay = ({ headers }: Said) => headers.get("idempotent-replayed") === "true";
    expect(answers.filter(isReplay)).toHaveLength(19);
    expect((await ask("GET", `/stock/${sku}`)).body.onHand).toBe(8);
  });

  test("that is sold out is a 409, also in its replay", async () => {
    const { ask } = await serve();
    const sku = await newSku(1);
    const asking = { key: newKey(), body: { quantity: 2 } };
    const first = await ask("POST", `/stock/${sku}/decrement`, asking);
    expect(first).toMatchObject({ status: 409, body: { code: "SOLD_OUT", remaining: 1 } });
    const again = await ask("POST", `/stock/${sku}/decrement`, asking);
    expect(again).toMatchObject({ status: 409, body: { code: "SOLD_OUT", remaining: 1 } });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
  });

  test("without a valid key is a 400", async () => {
    const { ask } = await serve();
    const sku = await newSku();
    const send = (key?: string) =>
      ask("POST", `/stock/${sku}/decrement`, { ...(key && { key }), body: { quantity: 1 } });
    expect(await send()).toMatchObject({ status: 400, body: { code: "KEY_MISSING" } });
    for (const key of ["x".repeat(256), '"', '"a"b"', "caf\u00e9", '""', "a,b", '"a", "b"']) {
      expect(await send(key)).toMatchObject({ status: 400, body: { code: "INVALID_KEY" } });
    }
    expect((await ask("GET", `/stock/${sku}`)).body.sold).toBe(0);
  });

  test("under the key of another change is a 422", async () => {
    const { ask } = await serve();
    const sku = await newSku();
    const key = newKey();
    await ask("POST", `/stock/${sku}/restock`, { key, body: { quantity: 1 } });
    for (const [path, quantity] of [
      ["restock", 2],
      ["decrement", 1],
    ] as const) {
      const other = await ask("POST", `/stock/${sku}/${path}`, { key, body: { quantity } });
      expect(other).toMatchObject({ status: 422, body: { code: "OPERATION_CONFLICT" } });
    }
    const elsewhere = `/stock/${await newSku()}/restock`;
    expect(await ask("POST", elsewhere, { key, body: { quantity: 1 } })).toMatchObject({
      ...{ status: 422, body: { code: "OPERATION_CONFLICT" } },
    });
  });

  test("of an unknown sku is a 404", async () => {
    const { ask } = await serve();
    const unknown = { status: 404, body: { code: "UNKNOWN_SKU" } };
    expect(await ask("GET", "/stock/nothing")).toMatchObject(unknown);
    const sale = { key: newKey(), body: { quantity: 1 } };
    expect(await ask("POST", "/stock/nothing/decrement", sale)).toMatchObject(unknown);
    const sku = await newSku();
    const path = `/stock/${sku}/reservations/nothing/confirm`;
    expect(await ask("POST", path, { key: newKey() })).toMatchObject({
      ...{ status: 404, body: { code: "UNKNOWN_RESERVATION" } },
    });
  });

  test("can be a reservation that is confirmed or cancelled once", async () => {
    const { ask } = await serve();
    const sku = await newSku();
    const [kept, dropped] = [newKey(), newKey()];
    for (const key of [kept, dropped]) {
      const body = { quantity: 2, expiresIn: 60_000 };
      const made = await ask("POST", `/stock/${sku}/reservations`, { key, body });
      expect(made.status).toBe(200);
    }
    const close = (how: string, key: string, body?: object) =>
      ask("POST", `/stock/${sku}/reservations/${key}/${how}`, {
        key: newKey(),
        ...(body && { body }),
      });
    expect((await close("confirm", kept, { quantity: 1 })).status).toBe(400);
    // Many clients send it with each request.
    expect((await close("confirm", kept, {})).status).toBe(200);
    expect((await close("cancel", dropped)).status).toBe(200);
    const closed = { status: 409, body: { code: "RESERVATION_CLOSED" } };
    expect(await close("cancel", kept)).toMatchObject(closed);
    const stock = { onHand: 8, reserved: 0, sold: 2, supplied: 10 };
    expect((await ask("GET", `/stock/${sku}`)).body).toMatchObject(stock);
  });

  test("appears in the history, page by page", async () => {
    const { ask } = await serve();
    const sku = await newSku();
    for (const quantity of [1, 2, 3]) {
      await ask("POST", `/stock/${sku}/restock`, { key: newKey(), body: { quantity } });
    }
    const first = await ask("GET", `/stock/${sku}/history?limit=2`);
    const quantities = ({ body }: Said) =>
      body.entries.map(({ quantity }: { quantity: number }) => quantity);
    expect(quantities(first)).toEqual([3, 2]);
    const next = await ask("GET", `/stock/${sku}/history?limit=2&before=${first.body.before}`);
    expect(quantities(next)).toEqual([1, 10]);
    const odd = [
      "limit=0",
      "limit=x",
      "limit=0x10",
      "limit=%201",
      "before=",
      "before=1e3",
      "limits=1",
    ];
    for (const query of [...odd, "limit=1&limit=2", "limit=%ff"]) {
      expect((await ask("GET", `/stock/${sku}/history?${query}`)).status).toBe(400);
    }
  });

  test("under a sealed fence is refused after a later holder's change", async () => {
    const { ask } = await serve();
    const sku = await newSku();
    const sell = (fence: string) =>
      ask("POST", `/stock/${sku}/decrement`, {
        ...{ key: newKey(), body: { quantity: 1 }, headers: { "lockstep-fence": fence } },
      });
    const fences: string[] = [];
    for (let i = 0; i < 2; i += 1) {
      await opened.locks.withLock(stockLock(sku), { ttl: 60_000, wait: 60_000 }, async (lock) => {
        fences.push(await sealFence(lock.fence, SECRET));
      });
    }
    const [late = "", current = ""] = fences;
    expect((await sell(current)).status).toBe(200);
    expect(await sell(late)).toMatchObject({ status: 409, body: { code: "FENCED_OUT" } });
    const forged = current.replace(/\d{20}/, "09223372036854775807");
    for (const fence of [forged, "x", `${current}0`]) {
      expect(await sell(fence)).toMatchObject({ status: 400, body: { code: "FENCE_INVALID" } });
    }
    const ofAnother = await opened.locks.withLock(
      stockLock(await newSku()),
      { ttl: 60_000, wait: 60_000 },
      (lock) => sealFence(lock.fence, SECRET),
    );
    expect(await sell(ofAnother)).toMatchObject({ status: 400, body: { code: "FENCE_INVALID" } });
    expect((await ask("GET", `/stock/${sku}`)).body.sold).toBe(1);
    const without = await serving({ inventory: opened.inventory });
    const unread = await without.ask("POST", `/stock/${sku}/decrement`, {
      ...{ key: newKey(), body: { quantity: 1 }, headers: { "lockstep-fence": current } },
    });
    expect(unread).toMatchObject({ status: 400, body: { code: "FENCE_INVALID" } });
  });

  test("reaches every sku, byte for byte", async () => {
    const { ask } = await serve();
    const names = [
      "-",
      ".",
      "..",
      "../../etc/passwd",
      "a/b",
      "a%2Fb",
      "a+b c",
      "é",
      "e\u0301",
      "\\",
      "?#&=",
    ];
    const anyText = fc.string({ unit: "binary", minLength: 1, maxLength: 60 });
    const skus = fc.sample(anyText, 60).filter((sku) => !sku.includes("\0"));
    for (const sku of [...names, ...skus]) {
      const quantity = 1 + Math.floor(Math.random() * 1_000);
      const body = { quantity };
      const isPlain = sku !== "." && sku !== "..";
      const inPath = `/stock/${encodeURIComponent(sku)}`;
      const inQuery = `/stock/-?sku=${encodeURIComponent(sku)}`;
      const path = isPlain && quantity % 2 === 0 ? inPath : inQuery;
      expect((await ask("PUT", path, { key: newKey(), body })).body).toMatchObject({ sku });
      expect(await opened.inventory.get(sku)).toMatchObject({ onHand: quantity });
      expect((await ask("GET", isPlain ? inPath : inQuery)).body.onHand).toBe(quantity);
    }
  });
});

testSecrecy(100);
