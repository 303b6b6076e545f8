import { randomUUID } from "node:crypto";
import { connect, type Socket } from "node:net";
import { text as textOf } from "node:stream/consumers";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, inject, onTestFinished, test } from "vitest";
import { z } from "zod";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sealFence } from "../../core/lock/fence.ts";
import { TerminalError } from "../../core/steps/errors.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { bearer } from "../../functions/http/auth.ts";
import type { AppOptions } from "../../functions/http/options.ts";
import { Trail } from "../../functions/http/trail.ts";
import { migrate } from "../../infra/migrate.ts";
import { type Opened, open } from "../../infra/open.ts";
import { everythingSaid, READ_TOKEN, type Said, serving, TOKEN } from "../support/http.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryDatabase, temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

const SECRET = "canary-secret-of-fences";

let opened: Opened;
let removeFile: () => Promise<void>;

beforeAll(async () => {
  const { file, remove } = await temporaryFile();
  opened = await open(`sqlite:${file}`);
  removeFile = remove;
});

afterAll(async () => {
  await opened.close();
  await removeFile();
});

/** Lets steps of the test's workflows wait for it, by run id. */
const gates = new Map<string, PromiseWithResolvers<void>>();
const effects = new Map<string, number>();

/** How often the workflow that is another one each time was carried. */
let changes = 0;

const Input = z.object({
  does: z.enum([
    "work",
    "fail",
    "fault",
    "faulty",
    "bug",
    "sleep",
    "wait",
    "lock",
    "gate",
    "break",
    "change",
  ]),
  code: z.string().default("SOLD_OUT"),
  items: z.array(z.string()).default([]),
});

/** Takes the same as the other one. */
const twin = workflow({ name: "twin", version: 1, input: Input }, async () => "twin");

const flow = workflow({ name: "flow", version: 1, input: Input }, async (ctx, { does, code }) => {
  await ctx.step(
    "effect",
    async () => void effects.set(ctx.runId, (effects.get(ctx.runId) ?? 0) + 1),
    async () => void effects.delete(ctx.runId),
  );
  if (does === "fail") throw new TerminalError(code, "there are none left", { data: { left: 0 } });
  const fault = Object.assign(new Error("duplicate entry canary-password"), { code });
  if (does === "fault") throw fault;
  if (does === "faulty") await ctx.step("faulty", { retry: false }, () => Promise.reject(fault));
  if (does === "bug") throw new Error("mysql://shop:canary-password@db/shop is broken");
  if (does === "break") {
    await ctx.step("broken", { retry: false }, async () => {
      throw new Error("connect to mysql://shop:canary-password@db/shop");
    });
  }
  if (does === "change") {
    changes += 1;
    await ctx.step(`change ${changes}`, async () => {});
    return ctx.waitFor("paid", z.unknown());
  }
  if (does === "sleep") await ctx.sleep("long", "1h");
  if (does === "wait") return ctx.waitFor("paid", z.object({ amount: z.number() }));
  if (does === "gate") {
    await ctx.step("gate", () => gates.get(ctx.runId)?.promise ?? Promise.resolve());
  }
  if (does === "lock") {
    const lock = { names: `busy/${ctx.runId}`, onBusy: "suspend" } as const;
    return ctx.step("locked", { lock }, async ({ fence }) => fence.token);
  }
  return { done: does, at: new Date(0), many: 2n ** 60n };
});

function appOptions(more: AppOptions = {}): AppOptions {
  const { locks, inventory, journal } = opened;
  if (!journal) throw new Error("there is no journal");
  const trail = new Trail();
  const workflows = [flow, twin];
  const runtime = createRuntime({ journal, locks, workflows, onEvent: trail.listen });
  return { ...{ runtime, workflows, inventory, locks, trail, secret: SECRET }, ...more };
}

const serve = (more?: AppOptions) => serving(appOptions(more));

const startPath = "/workflows/flow/runs";
const newKey = () => `key-${randomUUID()}`;

/** A sku with so many on hand. */
async function newSku(quantity = 10): Promise<string> {
  const sku = `sku-${randomUUID()}`;
  await opened.inventory?.set({ sku, quantity, operationId: newKey() });
  return sku;
}

describe("a change of stock", () => {
  test("is made once per key, and its repetition gets the same answer", async () => {
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
      ...{ operation: "decrementStock", method: "POST", status: 200, who: "shop" },
      ...{ sku, operationId: key, replayed: false, path: `/stock/${sku}/decrement` },
    });
  });

  test("happens once though it is sent twenty times at once", async () => {
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

  test("that is sold out is a 409, and replayed as one", async () => {
    const { ask } = await serve();
    const sku = await newSku(1);
    const asking = { key: newKey(), body: { quantity: 2 } };
    const first = await ask("POST", `/stock/${sku}/decrement`, asking);
    expect(first).toMatchObject({ status: 409, body: { code: "SOLD_OUT", remaining: 1 } });
    const again = await ask("POST", `/stock/${sku}/decrement`, asking);
    expect(again).toMatchObject({ status: 409, body: { code: "SOLD_OUT", remaining: 1 } });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
  });

  test("without a key, or with one that is none, is a 400", async () => {
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

  test("under a key of something else is a 422", async () => {
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

  test("of a sku that is not there is a 404", async () => {
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

  test("may be a reservation, that is confirmed or cancelled once", async () => {
    const { ask } = await serve();
    const sku = await newSku();
    const [kept, dropped] = [newKey(), newKey()];
    for (const key of [kept, dropped]) {
      const body = { quantity: 2, expiresIn: 60_000 };
      const made = await ask("POST", `/stock/${sku}/reservations`, { key, body });
      expect(made.status).toBe(200);
    }
    const close = (how: string, key: string) =>
      ask("POST", `/stock/${sku}/reservations/${key}/${how}`, { key: newKey() });
    expect((await close("confirm", kept)).status).toBe(200);
    expect((await close("cancel", dropped)).status).toBe(200);
    const closed = { status: 409, body: { code: "RESERVATION_CLOSED" } };
    expect(await close("cancel", kept)).toMatchObject(closed);
    const stock = { onHand: 8, reserved: 0, sold: 2, supplied: 10 };
    expect((await ask("GET", `/stock/${sku}`)).body).toMatchObject(stock);
  });

  test("stands in the history, page by page", async () => {
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
    for (const query of ["limit=0", "limit=x", "limits=1", "limit=1&limit=2", "limit=%ff"]) {
      expect((await ask("GET", `/stock/${sku}/history?${query}`)).status).toBe(400);
    }
  });

  test("under a sealed fence is refused once a later holder has come", async () => {
    const { ask } = await serve();
    const sku = await newSku();
    const sell = (fence: string) =>
      ask("POST", `/stock/${sku}/decrement`, {
        ...{ key: newKey(), body: { quantity: 1 }, headers: { "lockstep-fence": fence } },
      });
    const fences: string[] = [];
    for (let i = 0; i < 2; i += 1) {
      await opened.locks.withLock(stockLock(sku), { ttl: 5_000, wait: 5_000 }, async (lock) => {
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
      { ttl: 5_000, wait: 5_000 },
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

  test("reaches any sku, byte for byte", async () => {
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
      expect(await opened.inventory?.get(sku)).toMatchObject({ onHand: quantity });
      expect((await ask("GET", isPlain ? inPath : inQuery)).body.onHand).toBe(quantity);
    }
  });
});

describe("a run", () => {
  const start = (ask: Awaited<ReturnType<typeof serve>>["ask"], does: string, key = newKey()) =>
    ask("POST", startPath, { key, body: { does } });

  test("that completes answers with its output, and so does its replay", async () => {
    const { ask, log } = await serve();
    const key = newKey();
    const first = await start(ask, "work", key);
    const output = { done: "work", at: "1970-01-01T00:00:00.000Z", many: String(2n ** 60n) };
    expect(first).toMatchObject({ status: 200, body: { runId: key, status: "completed", output } });
    expect(first.headers.get("location")).toBe(`/runs/${key}`);
    expect(first.headers.get("idempotent-replayed")).toBeNull();
    const again = await start(ask, "work", key);
    expect(again).toMatchObject({ status: 200, text: first.text });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(effects.get(key)).toBe(1);
    expect(log[0]).toMatchObject({ runId: key, workflow: "flow", runStatus: "completed" });
    expect(log[0]?.steps).toEqual(["effect ok"]);
    expect(log[1]).toMatchObject({ replayed: true });
  });

  test("whose key was used with another input is a 422", async () => {
    const { ask } = await serve();
    const key = newKey();
    await start(ask, "work", key);
    const other = await start(ask, "sleep", key);
    const conflict = { status: 422, body: { code: "INPUT_CONFLICT" } };
    expect(other).toMatchObject(conflict);
    const body = { does: "work" };
    expect(await ask("POST", "/workflows/twin/runs", { key, body })).toMatchObject(conflict);
  });

  test("that is asked for twice at once happens once; the second is told to come back", async () => {
    const { ask } = await serve();
    const key = newKey();
    const gate = Promise.withResolvers<void>();
    gates.set(key, gate);
    const first = start(ask, "gate", key);
    await until(() => effects.get(key));
    const second = await start(ask, "gate", key);
    expect(second).toMatchObject({ status: 409, body: { code: "IN_PROGRESS", runId: key } });
    expect(second.headers.get("location")).toBe(`/runs/${key}`);
    expect(Number(second.headers.get("retry-after"))).toBeGreaterThan(0);
    gate.resolve();
    expect((await first).status).toBe(200);
    const third = await start(ask, "gate", key);
    expect(third.text).toBe((await first).text);
    expect(effects.get(key)).toBe(1);
  });

  test("cut off by its client has its answer under the same key", async () => {
    const { ask } = await serve();
    const key = newKey();
    const gate = Promise.withResolvers<void>();
    gates.set(key, gate);
    const client = new AbortController();
    const body = { does: "gate" };
    const cut = ask("POST", startPath, { key, body, signal: client.signal });
    await until(() => effects.get(key));
    client.abort();
    await expect(cut).rejects.toThrow();
    gate.resolve();
    const answer = await until(async () => {
      const one = await start(ask, "gate", key);
      return one.status === 200 && one;
    });
    expect(answer.headers.get("idempotent-replayed")).toBe("true");
    expect(effects.get(key)).toBe(1);
  });

  test("that sleeps is a 202, with where and when to look", async () => {
    const { ask } = await serve();
    const slept = await start(ask, "sleep");
    expect(slept).toMatchObject({ status: 202, body: { status: "suspended", reason: "sleep" } });
    expect(Number(slept.headers.get("retry-after"))).toBeGreaterThan(3_500);
    const run = await ask("GET", slept.headers.get("location") ?? "");
    expect(run.body).toMatchObject({ status: "parked", reason: "sleep", input: { does: "sleep" } });
    expect(run.body.timeline.map(({ key }: { key: string }) => key)).toContain("effect");
    expect(Number(run.headers.get("retry-after"))).toBeGreaterThan(3_500);
  });

  test("is only begun for a client that wants no more", async () => {
    const { ask } = await serve();
    const key = newKey();
    const headers = { prefer: "respond-async" };
    const begun = await ask("POST", startPath, { key, body: { does: "work" }, headers });
    expect(begun).toMatchObject({ status: 202, body: { runId: key, reason: "deadline" } });
    expect(effects.get(key)).toBeUndefined();
    expect((await start(ask, "work", key)).status).toBe(200);
  });

  test("that waits for a lock is a 423 to come back from", async () => {
    const { ask } = await serve();
    const { ask: askOther } = await serve({ busyStatus: 429 });
    const key = newKey();
    await opened.locks.withLock(`busy/${key}`, { ttl: 20_000, wait: 0 }, async () => {
      const busy = await start(ask, "lock", key);
      expect(busy).toMatchObject({ status: 423, body: { code: "LOCK_BUSY", runId: key } });
      expect(Number(busy.headers.get("retry-after"))).toBeGreaterThan(0);
      const other = newKey();
      await opened.locks.withLock(`busy/${other}`, { ttl: 20_000, wait: 0 }, async () => {
        expect((await start(askOther, "lock", other)).status).toBe(429);
      });
    });
    const done = await until(async () => {
      const one = await start(ask, "lock", key);
      return one.status === 200 && one;
    });
    expect(done.body.output).toMatch(/^\d+$/);
  });

  test("that fails with a code of the workflow's has a status of the client's kind", async () => {
    const { ask } = await serve({ statuses: { NO_MONEY: 402 } });
    const fail = (code: string, key = newKey()) =>
      ask("POST", startPath, { key, body: { does: "fail", code } });
    const key = newKey();
    const soldOut = await fail("SOLD_OUT", key);
    expect(soldOut).toMatchObject({
      status: 409,
      body: { code: "SOLD_OUT", runId: key, compensated: true, data: { left: 0 } },
    });
    const again = await fail("SOLD_OUT", key);
    expect(again.status).toBe(409);
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(await fail("TOO_OLD")).toMatchObject({ status: 422, body: { code: "TOO_OLD" } });
    expect(await fail("NO_MONEY")).toMatchObject({ status: 402, body: { code: "NO_MONEY" } });
    expect(await fail("toString")).toMatchObject({ status: 422, body: { code: "toString" } });
    expect(await fail("FENCED_OUT")).toMatchObject({ status: 409 });
    expect(effects.get(key)).toBeUndefined();
  });

  test("that fails by a fault is a 500 that gives nothing away", async () => {
    const { ask } = await serve();
    const key = newKey();
    expect(await start(ask, "bug", key)).toMatchObject({
      status: 500,
      body: { code: "RUN_FAILED" },
    });
    const run = await ask("GET", `/runs/${key}`);
    expect(run.body).toMatchObject({ status: "failed", error: { name: "Error" } });
    const broken = newKey();
    expect(await start(ask, "break", broken)).toMatchObject({
      ...{ status: 500, body: { code: "STEP_FAILED" } },
    });
    expect((await ask("GET", `/runs/${broken}`)).text).toContain("broken");
    for (const does of ["fault", "faulty"]) {
      const body = { does, code: "P2002" };
      const asking = { key: newKey(), body };
      for (const answer of [
        await ask("POST", startPath, asking),
        await ask("POST", startPath, asking),
      ]) {
        expect(answer).toMatchObject({ status: 500, body: { code: "P2002" } });
      }
    }
  });

  test("whose workflow has changed under it is a 500, and stays one", async () => {
    const { ask } = await serve();
    const key = newKey();
    expect((await start(ask, "change", key)).status).toBe(202);
    const sent = await ask("POST", `/runs/${key}/signals/paid`, { key: newKey(), body: 1 });
    expect(sent.body).toMatchObject({ status: "failed", error: { code: "NON_DETERMINISM" } });
    for (let i = 0; i < 2; i += 1) {
      const changed = await start(ask, "change", key);
      expect(changed).toMatchObject({ status: 500, body: { code: "NON_DETERMINISM" } });
      expect(changed.headers.get("retry-after")).toBeNull();
    }
  });

  test("is not begun with an input that its workflow does not take", async () => {
    const { ask } = await serve();
    for (const body of [{ does: "nothing" }, {}, [], 7, "work", null]) {
      const refused = await ask("POST", startPath, { key: newKey(), body });
      expect(refused).toMatchObject({ status: 400, body: { code: "INVALID" } });
      expect(refused.body.issues.length).toBeGreaterThan(0);
    }
    expect((await ask("POST", startPath, { key: newKey() })).status).toBe(400);
    const faults = { does: "work", items: Array.from({ length: 100_000 }, () => 1) };
    const refused = await ask("POST", startPath, { key: newKey(), body: faults });
    expect(refused).toMatchObject({ status: 400, body: { code: "INVALID" } });
    expect(refused.text.length).toBeLessThan(10_000);
    const unknown = await ask("POST", "/workflows/nix/runs", { key: newKey(), body: {} });
    expect(unknown).toMatchObject({ status: 404, body: { code: "UNKNOWN_WORKFLOW" } });
    expect(await ask("GET", "/runs/nix")).toMatchObject({
      ...{ status: 404, body: { code: "UNKNOWN_RUN" } },
    });
  });

  test("that needs longer than the request may take is parked, and goes on when asked again", async () => {
    const { ask } = await serve({ timeout: 300 });
    const key = newKey();
    const gate = Promise.withResolvers<void>();
    gates.set(key, gate);
    const parked = await start(ask, "gate", key);
    expect(parked).toMatchObject({ status: 202, body: { reason: "deadline" } });
    expect(parked.headers.get("location")).toBe(`/runs/${key}`);
    expect(Number(parked.headers.get("retry-after"))).toBeGreaterThan(0);
    gate.resolve();
    expect((await start(ask, "gate", key)).status).toBe(200);
    expect(effects.get(key)).toBe(1);
  });

  test("gets a signal once per key, and goes on", async () => {
    const { ask } = await serve();
    const runId = newKey();
    const waiting = await start(ask, "wait", runId);
    expect(waiting).toMatchObject({ status: 202, body: { reason: "signal" } });
    expect(waiting.headers.get("location")).toBe(`/runs/${runId}`);
    expect(waiting.headers.get("retry-after")).toBe("60");
    const key = newKey();
    const send = (amount: number, more = {}) =>
      ask("POST", `/runs/${runId}/signals/paid`, { key, body: { amount }, ...more });
    const sent = await send(7);
    expect(sent).toMatchObject({
      ...{ status: 200, body: { status: "completed", output: { amount: 7 } } },
    });
    const again = await send(7);
    expect(again).toMatchObject({ status: 200, text: sent.text });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(await send(8)).toMatchObject({ status: 422, body: { code: "SIGNAL_CONFLICT" } });
    const late = await send(7, { key: newKey() });
    expect(late).toMatchObject({ status: 409, body: { code: "RUN_ENDED" } });
    expect(await ask("POST", "/runs/nix/signals/paid", { key, body: 1 })).toMatchObject({
      ...{ status: 404, body: { code: "UNKNOWN_RUN" } },
    });
    expect((await ask("POST", `/runs/${runId}/signals/paid`, { body: 1 })).status).toBe(400);
    const forged = await ask("POST", `/runs/${runId}/signals/~child%2Fa`, { key, body: {} });
    expect(forged).toMatchObject({ status: 400, body: { code: "INVALID" } });
  });

  test("is sent the same signal again, or another one under its key", async () => {
    const { ask } = await serve();
    const runId = newKey();
    await start(ask, "sleep", runId);
    const key = newKey();
    const send = (body: unknown) =>
      ask("POST", `/runs/${runId}/signals/news`, {
        key,
        body,
        headers: { prefer: "respond-async" },
      });
    const first = await send({ a: 1, b: [2] });
    expect(first).toMatchObject({ status: 202, body: { runId } });
    const again = await send({ b: [2], a: 1 });
    expect(again.status).toBe(202);
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(await send({ a: 2 })).toMatchObject({ status: 422, body: { code: "SIGNAL_CONFLICT" } });
    const { body } = await ask("GET", `/runs/${runId}`);
    expect(body.signals).toMatchObject([
      { name: "news", dedupeId: key, payload: { a: 1, b: [2] } },
    ]);
  });

  test("is cancelled and undone, once", async () => {
    const { ask } = await serve();
    const runId = newKey();
    await start(ask, "sleep", runId);
    expect(effects.get(runId)).toBe(1);
    const cancelled = await ask("POST", `/runs/${runId}/cancel`);
    expect(cancelled).toMatchObject({
      status: 200,
      body: { status: "failed", compensated: true, error: { code: "RUN_CANCELLED" } },
    });
    expect(effects.get(runId)).toBeUndefined();
    const again = await ask("POST", `/runs/${runId}/cancel`);
    expect(again.status).toBe(200);
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    const done = newKey();
    await start(ask, "work", done);
    expect(await ask("POST", `/runs/${done}/cancel`)).toMatchObject({
      ...{ status: 409, body: { code: "RUN_ENDED" } },
    });
    expect((await ask("POST", "/runs/nix/cancel")).status).toBe(404);
  });

  test("with an id that no path can carry is found by its Location", async () => {
    const { ask } = await serve({ basePath: "/v1" });
    for (const key of ["a/b", "..", "-", "100% sure?"]) {
      const id = key + randomUUID().slice(0, key === ".." || key === "-" ? 0 : 8);
      const begun = await ask("POST", `/v1${startPath}`, { key: id, body: { does: "work" } });
      const run = await ask("GET", begun.headers.get("location") ?? "");
      expect(run).toMatchObject({ status: 200, body: { runId: id } });
    }
  });
});

describe("when there is no answer to be had", () => {
  /** An app on MySQL, over a wire that can be cut. */
  async function overWire(timeout: number) {
    const [server] = inject("sqlServers");
    if (!server) throw new Error("there is no server");
    const database = await temporaryDatabase(server);
    const proxy = await TcpProxy.to(database.options.port);
    const direct = await open(database.url);
    if (direct.database) await migrate(direct.database);
    const url = new URL(database.url);
    url.port = String(proxy.port);
    const { journal, locks, inventory, close } = await open(url.href);
    if (!journal) throw new Error("there is no journal");
    onTestFinished(async () => {
      await proxy.close();
      await Promise.all([close(), direct.close()]);
      await database.drop();
    });
    const runtime = createRuntime({ journal, locks, workflows: [flow] });
    const app = await serving({ runtime, workflows: [flow], inventory, locks, timeout });
    await inventory?.set({ sku: "a", quantity: 5, operationId: "set" });
    return { ...app, proxy, direct };
  }

  test("a store that is away is a 503, and readiness says so in time; the process is up", async () => {
    const { ask, proxy, log } = await overWire(10_000);
    expect(await ask("GET", "/ready")).toMatchObject({ status: 200, body: { status: "ready" } });
    await proxy.close();
    const sale = await ask("POST", "/stock/a/decrement", { key: "k", body: { quantity: 1 } });
    expect(sale).toMatchObject({ status: 503, body: { code: "STORE_UNAVAILABLE" } });
    expect(Number(sale.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(log.at(-1)?.error).toContain("127.0.0.1");
    expect(sale.text).not.toContain("127.0.0.1");
    const run = await ask("POST", startPath, { key: "r", body: { does: "work" } });
    expect(run).toMatchObject({ status: 503, body: { code: "STORE_UNAVAILABLE" } });
    const ready = await ask("GET", "/ready");
    expect(ready).toMatchObject({ status: 503, body: { checks: { journal: "failed" } } });
    expect(Number(ready.headers.get("retry-after"))).toBeGreaterThan(0);
    expect((await ask("GET", "/health")).status).toBe(200);
  });

  test("a change whose answer is lost is a 503 that says so; the same key finds out", async () => {
    const { ask, proxy, direct, log } = await overWire(1_000);
    proxy.cut();
    const hanging = await ask("GET", "/ready");
    expect(hanging).toMatchObject({ status: 503, body: { checks: { inventory: "failed" } } });
    const asking = { key: "order-1", body: { quantity: 2 } };
    expect(log.at(-1)?.took).toBeLessThan(10_000);
    const lost = await ask("POST", "/stock/a/decrement", asking);
    expect(lost).toMatchObject({ status: 503, body: { code: "UNKNOWN_OUTCOME" } });
    expect(Number(lost.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await ask("GET", "/stock/a")).toMatchObject({ status: 503, body: { code: "NO_TIME" } });
    const run = { key: "run-1", body: { does: "work" } };
    for (const path of [startPath, "/runs/run-1/signals/paid", "/runs/run-1/cancel"]) {
      const unknown = await ask("POST", path, run);
      expect(unknown).toMatchObject({ status: 503, body: { code: "UNKNOWN_OUTCOME" } });
      expect(log.at(-1)?.took).toBeLessThan(8_000);
    }
    proxy.mend();
    const found = await until(async () => {
      const one = await ask("POST", "/stock/a/decrement", asking);
      return one.status === 200 && one;
    });
    expect(found.body.remaining).toBe(3);
    expect(await direct.inventory?.get("a")).toMatchObject({ onHand: 3, sold: 2 });
  });

  test("a request whose time is over before it begins is a 503, and nothing has happened", async () => {
    const { ask } = await serving({
      ...appOptions(),
      timeout: 1,
      authorize: async () => {
        await new Promise((resolve) => setTimeout(resolve, 20));
        return {};
      },
    });
    const key = newKey();
    const run = await ask("POST", startPath, { key, body: { does: "work" } });
    expect(run).toMatchObject({ status: 503, body: { code: "NO_TIME" } });
    expect(Number(run.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await ask("GET", `/stock/a`)).toMatchObject({ status: 503, body: { code: "NO_TIME" } });
    expect(await opened.journal?.show(key)).toBeUndefined();
  });

  test("too many requests for the same thing are a 429, and others are served", async () => {
    const { ask } = await serve({ limits: { requests: 3, perKey: 1 } });
    const [key, other] = [newKey(), newKey()];
    gates.set(key, Promise.withResolvers<void>());
    const first = ask("POST", startPath, { key, body: { does: "gate" } });
    await until(() => effects.get(key));
    const second = await ask("POST", startPath, { key: other, body: { does: "work" } });
    expect(second).toMatchObject({ status: 429, body: { code: "TOO_MANY_REQUESTS" } });
    expect(Number(second.headers.get("retry-after"))).toBeGreaterThan(0);
    expect((await ask("GET", `/stock/${await newSku()}`)).status).toBe(200);
    gates.get(key)?.resolve();
    await first;
    expect((await ask("POST", startPath, { key: other, body: { does: "work" } })).status).toBe(200);
  });
});

describe("who may do what", () => {
  /** Every operation of the app, with a path that fits. */
  async function operations(url: string) {
    const response = await fetch(`${url}/openapi.json`, {
      headers: { authorization: `Bearer ${TOKEN}` },
    });
    const { paths } = (await response.json()) as {
      paths: Record<string, Record<string, { operationId: string }>>;
    };
    return Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId }]) => ({
        method: method.toUpperCase(),
        path: path.replace(/\{\w+\}/g, "x"),
        operationId,
      })),
    );
  }

  test("without configuration nobody may do anything but ask whether the process is up", async () => {
    const all = await operations((await serve()).url);
    expect(all.length).toBeGreaterThan(13);
    const { authorize: _, ...rest } = { authorize: undefined, ...appOptions() };
    const { ask } = await serving({ ...rest, authorize: undefined as never });
    for (const { method, path, operationId } of all) {
      const { status, body } = await ask(method, path, { key: newKey() });
      if (operationId === "health") expect(status).toBe(200);
      else
        expect({ operationId, status, body }).toMatchObject({
          status: 403,
          body: { code: "FORBIDDEN" },
        });
    }
    for (const path of ["/", "/nix", "/stock/%ff", "/docs", "/docs/index.html"]) {
      expect((await ask("GET", path)).status).toBe(403);
    }
    expect((await ask("DELETE", "/health")).status).toBe(403);
  });

  test("missing and wrong credentials are a 401 before anything is read", async () => {
    const { ask, url, log } = await serve();
    for (const { method, path, operationId } of await operations(url)) {
      if (operationId === "health") continue;
      const { status, headers } = await ask(method, path, { token: "", key: newKey() });
      expect({ operationId, status }).toEqual({ operationId, status: 401 });
      expect(headers.get("www-authenticate")).toMatch(/^Bearer/);
    }
    const sku = await newSku();
    const wrong = ["wrong", `${TOKEN}x`, TOKEN.slice(1), TOKEN.toUpperCase(), `${TOKEN}, ${TOKEN}`];
    for (const token of wrong) {
      const asking = { key: newKey(), raw: "x".repeat(300_000), token };
      expect((await ask("POST", `/stock/${sku}/decrement`, asking)).status).toBe(401);
    }
    for (const authorization of [
      TOKEN,
      `Basic ${btoa(`a:${TOKEN}`)}`,
      "Bearer",
      `Bearer ${TOKEN} x`,
    ]) {
      const asking = { token: "", headers: { authorization } };
      expect((await ask("GET", `/stock/${sku}`, asking)).status).toBe(401);
    }
    expect(log.every(({ who }) => who === undefined || who === "shop")).toBe(true);
    expect((await ask("GET", `/stock/${sku}`)).body.onHand).toBe(10);
  });

  test("a token that reads does not write", async () => {
    const { ask } = await serve();
    const sku = await newSku();
    const asking = { key: newKey(), body: { quantity: 1 }, token: READ_TOKEN };
    expect((await ask("GET", `/stock/${sku}`, { token: READ_TOKEN })).status).toBe(200);
    expect(await ask("POST", `/stock/${sku}/decrement`, asking)).toMatchObject({ status: 403 });
    expect((await ask("GET", `/stock/${sku}`)).body.onHand).toBe(10);
  });

  test("a hook decides by what is asked for; one that fails refuses", async () => {
    const asked: unknown[] = [];
    const { ask } = await serve({
      authorize: (request, about) => {
        asked.push(about);
        if (request.headers.has("x-fail")) throw "canary: no such issuer";
        return about.params.sku?.startsWith("mine") ? { who: "me" } : "forbidden";
      },
    });
    const sale = { key: newKey(), body: { quantity: 1 } };
    expect((await ask("POST", "/stock/mine-7/decrement", sale)).status).toBe(404);
    expect((await ask("POST", "/stock/theirs/decrement", sale)).status).toBe(403);
    expect((await ask("GET", "/stock/-?sku=mine%2F7")).status).toBe(404);
    const about = { operation: "decrementStock", access: "write", params: { sku: "mine-7" } };
    expect(asked[0]).toEqual({ ...about, key: sale.key });
    await ask("POST", "/stock/mine-7/decrement", { ...sale, key: `"${sale.key}"` });
    expect(asked.at(-1)).toEqual(asked[0]);
    await ask("POST", "/stock/mine-7/decrement", { ...sale, key: "" });
    expect(asked.at(-1)).toEqual(about);
    const headers = { "x-fail": "1" };
    expect(await ask("GET", "/stock/mine", { headers })).toMatchObject({
      ...{ status: 500, body: { code: "INTERNAL" } },
    });
  });

  test.each([undefined, null, false, true, 0, "", "unauthorized", { isAuthorized: false }])(
    "a hook that answers %j has granted nothing",
    async (verdict) => {
      const { ask } = await serve({ authorize: () => verdict as never });
      const sku = await newSku();
      const sale = { key: newKey(), body: { quantity: 1 } };
      for (const refused of [
        await ask("GET", `/stock/${sku}`),
        await ask("POST", `/stock/${sku}/decrement`, sale),
      ]) {
        expect(refused).toMatchObject({ status: 500, body: { code: "INTERNAL" } });
      }
      expect(await opened.inventory?.get(sku)).toMatchObject({ sold: 0 });
    },
  );

  test("a hook that does not answer holds a request no longer than it may take", async () => {
    const { ask } = await serve({ timeout: 100, authorize: () => new Promise(() => {}) });
    expect(await ask("GET", "/stock/a")).toMatchObject({ status: 503, body: { code: "NO_TIME" } });
  });

  test("a token must be worth its name", () => {
    expect(() => bearer(["short"])).toThrow(RangeError);
    expect(() => bearer(["with a space in the middle"])).toThrow(RangeError);
  });
});

describe("bad and hostile input", () => {
  const change = "/stock/hostile/restock";

  beforeAll(async () => {
    await opened.inventory?.set({ sku: "hostile", quantity: 1, operationId: newKey() });
  });

  test.each([
    ["nothing", "", "INVALID"],
    ["half of it", '{"quantity": 1', "MALFORMED"],
    ["two of them", '{"quantity": 1}{"quantity": 1}', "MALFORMED"],
    ["with a byte order mark", '\ufeff{"quantity": 1}', "MALFORMED"],
    ["no UTF-8", new Uint8Array([0x22, 0xff, 0x22]), "MALFORMED"],
    ["NaN", '{"quantity": NaN}', "MALFORMED"],
    ["text for a number", '{"quantity": "1"}', "INVALID"],
    ["a fraction", '{"quantity": 1.5}', "INVALID"],
    ["nothing at all", '{"quantity": 0}', "INVALID"],
    ["less than nothing", '{"quantity": -1}', "INVALID"],
    ["too many", '{"quantity": 1000001}', "INVALID"],
    ["beyond 2^53", '{"quantity": 9007199254740993}', "INEXACT_NUMBER"],
    ["beyond 2^53 below nothing", '{"quantity": [{"a": -9007199254740993}]}', "INEXACT_NUMBER"],
    ["infinitely many", '{"quantity": 1e400}', "INEXACT_NUMBER"],
    ["null", "null", "INVALID"],
    ["a list", "[1]", "INVALID"],
    ["a member more", '{"quantity": 1, "isAdmin": true}', "INVALID"],
    ["a prototype", '{"quantity": 1, "__proto__": {"isAdmin": true}}', "FORBIDDEN_NAME"],
    ["a constructor", '{"quantity": 1, "constructor": {"prototype": {"a": 1}}}', "FORBIDDEN_NAME"],
    ["10,000 levels", "[".repeat(10_000) + "]".repeat(10_000), "TOO_DEEP"],
    ["120,000 levels, open", "[".repeat(120_000), "MALFORMED"],
  ])("a body of %s is a 400", async (_, raw, code) => {
    const { ask } = await serve();
    const refused = await ask("POST", change, { key: newKey(), raw });
    expect(refused).toMatchObject({ status: 400, body: { code } });
    expect(refused.text.length).toBeLessThan(2_000);
    expect(await opened.inventory?.get("hostile")).toMatchObject({ onHand: 1 });
    expect(({} as { isAdmin?: boolean }).isAdmin).toBeUndefined();
  });

  test("names that reach a prototype do not get into a run either", async () => {
    const { ask } = await serve();
    const raw = '{"does": "work", "more": [{"deep": {"__proto__": {"isAdmin": true}}}]}';
    const refused = await ask("POST", startPath, { key: newKey(), raw });
    expect(refused).toMatchObject({ status: 400, body: { code: "FORBIDDEN_NAME" } });
    expect(Object.keys(Object.prototype)).toEqual([]);
  });

  test("a body that comes too slowly is a 408, and holds nothing up after it", async () => {
    const { url, ask, log } = await serve({ timeout: 200, limits: { perKey: 2 } });
    const answers = HALVES.map((half) => textOf(rawRequest(url, `POST ${change}`, half)));
    for (const answer of await Promise.all(answers)) {
      expect(answer).toMatch(/^HTTP\/1\.1 408 .*"code":"BODY_INCOMPLETE"/s);
    }
    expect(log).toMatchObject([{ status: 408 }, { status: 408 }]);
    expect((await ask("GET", "/stock/hostile")).status).toBe(200);
  });

  test("a client that goes away in the middle of its body is no fault of the server's", async () => {
    const { url, ask, log } = await serve({ limits: { perKey: 1 } });
    for (const half of HALVES) {
      log.length = 0;
      const socket = rawRequest(url, `POST ${change}`, half);
      await until(async () => (await ask("GET", "/stock/hostile")).status === 429);
      socket.destroy();
      await until(() => log.find(({ operation }) => operation === "restock"));
      expect(log.find(({ operation }) => operation === "restock")).toMatchObject({
        ...{ status: 408, code: "BODY_INCOMPLETE" },
      });
      expect((await ask("GET", "/stock/hostile")).status).toBe(200);
    }
  });

  test("a body that is too large is a 413, whether or not it says so; one that just fits is read", async () => {
    const { ask } = await serve({ bodyLimit: 1_000 });
    const padded = (bytes: number) => `{"quantity": 1}`.padEnd(bytes);
    const tooLarge = { status: 413, body: { code: "TOO_LARGE" } };
    const send = (raw: string | ReadableStream) => ask("POST", change, { key: newKey(), raw });
    expect(await send(padded(1_001))).toMatchObject(tooLarge);
    expect(await send(padded(3_000_000))).toMatchObject(tooLarge);
    expect(await send(new Blob([padded(200_000)]).stream())).toMatchObject(tooLarge);
    // It may be cut off before it has heard the answer.
    await send(new Blob([padded(9_000_000)]).stream()).catch(() => {});
    for (let i = 0; i < 3; i += 1) expect((await send(padded(1_000))).status).toBe(200);
    const byDefault = await serve();
    const key = newKey();
    expect((await byDefault.ask("POST", change, { key, raw: padded(262_145) })).status).toBe(413);
    expect((await byDefault.ask("POST", change, { key, raw: padded(262_144) })).status).toBe(200);
  });

  test("a body that is not said to be JSON, or is packed, is a 415", async () => {
    const { ask } = await serve();
    const send = (headers: Record<string, string>) =>
      ask("POST", change, { key: newKey(), raw: '{"quantity": 1}', headers });
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"]) {
      expect((await send({ "content-type": type })).body.code).toBe("NOT_JSON");
    }
    expect((await send({ "content-encoding": "gzip" })).body.code).toBe("ENCODED");
    for (const type of ["application/json; charset=utf-8", "application/vnd.shop+json"]) {
      expect((await send({ "content-type": type })).status).toBe(200);
    }
  });

  test("a path leads nowhere but to what it says", async () => {
    const { url, ask, log } = await serve();
    for (const path of [
      "/stock/%ff",
      "/stock/%E0%A4%A",
      "/stock/%",
      "/stock/a%00b",
      "/stock/-?sku=%ff",
    ]) {
      expect({ path, status: (await ask("GET", path)).status }).toEqual({ path, status: 400 });
    }
    expect((await ask("GET", `/stock/${"x".repeat(256)}`)).status).toBe(400);
    expect((await ask("GET", `/stock/${"%C3%A9".repeat(128)}`)).status).toBe(400);
    for (const path of [
      "/stock/../../etc/passwd",
      "/stock/%2e%2e/%2e%2e/etc/passwd",
      "/stock/..%2f..%2fetc%2fshadow",
      "/docs/../../package.json",
      "/docs/..%2f..%2fpackage.json",
      "//stock/a",
    ]) {
      const answer = await textOf(rawRequest(url, `GET ${path}`, "Connection: close\r\n\r\n"));
      expect(answer).toMatch(/^HTTP\/1\.1 404 /);
      expect(answer).not.toMatch(/root:|"name": "lockstep"/);
    }
    await ask("GET", `/stock/${encodeURIComponent('a\r\nb" evil')}`);
    expect(JSON.stringify(log.at(-1))).not.toMatch(/[\r\n]/);
  });

  test("other methods are a 405 that names the right ones", async () => {
    const { ask } = await serve();
    const refused = await ask("PATCH", "/stock/a");
    expect(refused).toMatchObject({ status: 405, body: { code: "METHOD_NOT_ALLOWED" } });
    expect(refused.headers.get("allow")).toBe("GET, HEAD, PUT");
    const overridden = { headers: { "x-http-method-override": "GET" }, key: newKey(), body: {} };
    expect((await ask("POST", "/stock/a", overridden)).status).toBe(405);
    expect((await ask("HEAD", "/health")).status).toBe(200);
  });

  test("a request's id is given back where it is one, and another one made where it is not", async () => {
    const { ask, log } = await serve();
    const idOf = async (id: string) =>
      (await ask("GET", "/health", { headers: { "x-request-id": id } })).headers.get(
        "x-request-id",
      );
    expect(await idOf("trace-7")).toBe("trace-7");
    expect(log.at(-1)?.requestId).toBe("trace-7");
    for (const id of ["<script>", "a b", "x".repeat(300)]) {
      expect(await idOf(id)).toMatch(/^[\da-f-]{36}$/);
    }
  });

  test("every answer says what a browser may do with it: nothing", async () => {
    const { ask } = await serve({ bodyLimit: 10 });
    const preflight = { origin: "https://evil.example", "access-control-request-method": "PUT" };
    const answers = [
      await ask("GET", "/health"),
      await ask("GET", "/nix"),
      await ask("PATCH", "/health"),
      await ask("GET", "/stock/a", { token: "" }),
      await ask("GET", "/health?a=1&a=2"),
      await ask("OPTIONS", "/stock/a", { token: "", headers: preflight }),
      await ask("POST", change, { key: "k", raw: "x".repeat(100) }),
    ];
    for (const { headers } of answers) {
      expect(headers.get("content-security-policy")).toContain("default-src 'none'");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("cache-control")).toBe("no-store");
      expect(headers.get("access-control-allow-origin")).toBeNull();
    }
  });
});

/** A connection with a request that no client would send. */
function rawRequest(url: string, line: string, rest: string): Socket {
  const { hostname, port, host } = new URL(url);
  const socket = connect(Number(port), hostname);
  const head = [`${line} HTTP/1.1`, `Host: ${host}`, `Authorization: Bearer ${TOKEN}`, rest];
  // Not ended: a client that says it has no more to send is taken for gone.
  socket.write(head.join("\r\n"));
  return socket;
}

/** Bodies of which the second half never comes. */
const HALVES = ["Content-Length: 14\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"].map(
  (rest) => `Idempotency-Key: half\r\nContent-Type: application/json\r\n${rest}`,
);

test("a server that ends answers what is under way, and takes nothing more", async () => {
  const drain = new AbortController();
  const { ask, close, url } = await serve({ drain: drain.signal });
  const key = newKey();
  const gate = Promise.withResolvers<void>();
  gates.set(key, gate);
  const first = ask("POST", startPath, { key, body: { does: "gate" } });
  await until(() => effects.get(key));
  drain.abort();
  const closed = close(20_000);
  await expect(fetch(`${url}/health`)).rejects.toThrow();
  gate.resolve();
  // The step is done; what comes after it is left to others.
  expect([200, 202]).toContain((await first).status);
  await closed;
  const after = await serve();
  expect((await after.ask("POST", startPath, { key, body: { does: "gate" } })).status).toBe(200);
  expect(effects.get(key)).toBe(1);
});

test("nothing that was answered or logged holds a secret or a stack", () => {
  expect(everythingSaid.length).toBeGreaterThan(500);
  const all = everythingSaid.join("\n");
  for (const canary of [TOKEN, READ_TOKEN, SECRET, "canary-password"]) {
    expect(all).not.toContain(canary);
  }
  expect(all).not.toMatch(/\\n {4}at |\.ts:\d+/);
});
