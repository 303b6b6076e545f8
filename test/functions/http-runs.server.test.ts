import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { Codec } from "../../core/steps/codecs.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import {
  effects,
  flow,
  gates,
  newKey,
  openBeforeTests,
  opened,
  serve,
  start,
  startPath,
  testSecrecy,
} from "../support/http-app.ts";
import { until } from "../support/until.ts";

openBeforeTests();

describe("a run", () => {
  test("that completes returns its output, and so does its replay", async () => {
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

  test("is shown without the codec of its values: they are described", async () => {
    const { ask } = await serve();
    const key = newKey();
    const codec = Codec.encrypted({ keys: { a: new Uint8Array(32) }, current: "a" });
    const withCodec = createRuntime({ journal: opened.journal, codec });
    await withCodec.execute(flow, { does: "wait" }, { id: key });
    await withCodec.signal(key, "paid", { amount: 1 }, { dedupeId: "1" });
    const encoded = { codec: "encrypted", bytes: expect.any(Number) };
    expect(await ask("GET", `/runs/${key}`)).toMatchObject({
      status: 200,
      body: { status: "parked", input: encoded, signals: [{ payload: encoded }] },
    });
    const again = { key: "1", body: { amount: 2 } };
    const blocked = {
      status: 200,
      body: { status: "blocked", error: { code: "UNREADABLE_VALUE" } },
    };
    expect(await ask("POST", `/runs/${key}/signals/paid`, again)).toMatchObject(blocked);
    await withCodec.cancel(key);
    await withCodec.resume(key);
    expect(await ask("GET", `/runs/${key}`)).toMatchObject({
      status: 200,
      body: { status: "cancelled", error: { name: "encrypted", message: expect.any(String) } },
    });
    expect(await start(ask, "wait", key)).toMatchObject({
      status: 503,
      body: { code: "UNREADABLE_VALUE" },
    });
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

  test("whose input makes an invalid id, or whose time is too long, is a 400", async () => {
    const { ask } = await serve();
    const invalid = { status: 400, body: { code: "INVALID" } };
    for (const orderId of ["é".repeat(200), "a\u0000b"]) {
      const body = { orderId };
      const key = newKey();
      expect(await ask("POST", "/workflows/order/runs", { key, body })).toMatchObject(invalid);
    }
    const body = { does: "work" };
    const keyed = { key: newKey(), body };
    const late = await ask("POST", "/workflows/twin/runs?debounce=99999999999999d", keyed);
    expect(late).toMatchObject(invalid);
  });

  test("whose workflow names its runs is started under that name alone", async () => {
    const { ask } = await serve();
    const [orderId, other] = [newKey(), newKey()];
    const order = (key: string) => ask("POST", "/workflows/order/runs", { key, body: { orderId } });
    expect(await order(other)).toMatchObject({
      status: 422,
      body: { code: "KEY_MISMATCH", runId: orderId },
    });
    expect((await ask("GET", `/runs/${other}`)).status).toBe(404);
    expect(await order(orderId)).toMatchObject({ status: 200, body: { runId: orderId } });
  });

  test("that is a singleton is one for all requests with its key while it is open", async () => {
    const { ask } = await serve();
    const key = newKey();
    const singleton = (does: string) =>
      ask("POST", `${startPath}?singleton=true`, { key, body: { does } });
    const [first, second] = [await singleton("wait"), await singleton("work")];
    expect(first).toMatchObject({ status: 202, body: { status: "suspended" } });
    const { runId } = first.body as { runId: string };
    expect(runId).not.toBe(key);
    expect(second).toMatchObject({ status: 202, body: { runId, status: "suspended" } });
    const body = { amount: 1 };
    const paid = await ask("POST", `/runs/${runId}/signals/paid`, { key: newKey(), body });
    expect(paid).toMatchObject({ status: 200, body: { runId, status: "completed" } });
    const third = await singleton("work");
    expect(third).toMatchObject({ status: 200, body: { status: "completed" } });
    expect(third.body).not.toMatchObject({ runId });
  });

  test("that is a cancelled singleton refuses starts until it has ended", async () => {
    const { ask } = await serve();
    const key = newKey();
    const singleton = () =>
      ask("POST", `${startPath}?singleton=true`, { key, body: { does: "wait" } });
    const { runId } = (await singleton()).body as { runId: string };
    const prefer = { headers: { prefer: "respond-async" } };
    expect((await ask("POST", `/runs/${runId}/cancel`, prefer)).status).toBe(202);
    const refused = await singleton();
    expect(refused).toMatchObject({ status: 409, body: { code: "RUN_CANCELLED" } });
    expect(refused.headers.get("retry-after")).toBe("1");
    await ask("POST", `/runs/${runId}/cancel`);
    expect((await singleton()).body).not.toMatchObject({ runId });
  });

  test("that is debounced is one for the requests within its time, with the last input", async () => {
    const { ask } = await serve();
    const key = newKey();
    const debounced = (does: string, query = "debounce=1h") =>
      ask("POST", `${startPath}?${query}`, { key, body: { does } });
    const first = await debounced("work");
    expect(first).toMatchObject({ status: 202, body: { runId: expect.any(String) } });
    const second = await debounced("sleep");
    expect(second).toMatchObject({ status: 202 });
    const { runId } = first.body as { runId: string };
    expect(second.body).toMatchObject({ runId });
    expect(second.headers.get("location")).toBe(`/runs/${runId}`);
    expect(await ask("GET", `/runs/${runId}`)).toMatchObject({
      body: { status: "parked", input: { does: "sleep" } },
    });
    for (const query of ["debounce=soon", "singleton=true&debounce=1s", "single=true"]) {
      expect(await debounced("work", query)).toMatchObject({ status: 400 });
    }
  });

  test("that is requested twice at once is executed once, and the second request gets a 409", async () => {
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

  test("whose client disconnected returns its result under the same key", async () => {
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

  test("that sleeps is a 202 with Location and Retry-After", async () => {
    const { ask } = await serve();
    const slept = await start(ask, "sleep");
    expect(slept).toMatchObject({ status: 202, body: { status: "suspended", reason: "sleep" } });
    expect(Number(slept.headers.get("retry-after"))).toBeGreaterThan(3_500);
    const run = await ask("GET", slept.headers.get("location") ?? "");
    expect(run.body).toMatchObject({ status: "parked", reason: "sleep", input: { does: "sleep" } });
    expect(run.body.timeline.map(({ key }: { key: string }) => key)).toContain("effect");
    expect(Number(run.headers.get("retry-after"))).toBeGreaterThan(3_500);
  });

  test("is only started with Prefer: respond-async", async () => {
    const { ask } = await serve();
    const key = newKey();
    const headers = { prefer: "respond-async" };
    const begun = await ask("POST", startPath, { key, body: { does: "work" }, headers });
    expect(begun).toMatchObject({ status: 202, body: { runId: key, reason: "deadline" } });
    expect(effects.get(key)).toBeUndefined();
    expect((await start(ask, "work", key)).status).toBe(200);
  });

  test("that waits for a lock is a 423 with Retry-After", async () => {
    const { ask } = await serve();
    const { ask: askOther } = await serve({ busyStatus: 429 });
    const key = newKey();
    await opened.locks.withLock(`busy/${key}`, { ttl: 20_000, wait: 60_000 }, async () => {
      const busy = await start(ask, "lock", key);
      expect(busy).toMatchObject({ status: 423, body: { code: "LOCK_BUSY", runId: key } });
      expect(Number(busy.headers.get("retry-after"))).toBeGreaterThan(0);
      const other = newKey();
      await opened.locks.withLock(`busy/${other}`, { ttl: 20_000, wait: 60_000 }, async () => {
        expect((await start(askOther, "lock", other)).status).toBe(429);
      });
    });
    const done = await until(async () => {
      const one = await start(ask, "lock", key);
      return one.status === 200 && one;
    });
    expect(done.body.output).toMatch(/^\d+$/);
  });

  test("that fails with a code of the workflow is a client error", async () => {
    const { ask } = await serve({ statuses: { NO_MONEY: 402 } });
    const fail = (code: string, key = newKey()) =>
      ask("POST", startPath, { key, body: { does: "fail", code } });
    const key = newKey();
    const soldOut = await fail("SOLD_OUT", key);
    expect(soldOut).toMatchObject({
      status: 409,
      body: { code: "SOLD_OUT", runId: key, compensated: "yes", data: { left: 0 } },
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

  test("that fails with another error is a 500 without details", async () => {
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

  test("whose workflow has changed is a 503 with Retry-After", async () => {
    const { ask } = await serve();
    const key = newKey();
    expect((await start(ask, "change", key)).status).toBe(202);
    const sent = await ask("POST", `/runs/${key}/signals/paid`, {
      key: newKey(),
      body: { amount: 1 },
    });
    expect(sent.body).toMatchObject({ status: "blocked", error: { code: "NON_DETERMINISM" } });
    for (let i = 0; i < 2; i += 1) {
      const changed = await start(ask, "change", key);
      expect(changed).toMatchObject({ status: 503, body: { code: "RUN_BLOCKED" } });
      // The rest of the first pause of 5 s or, on a busy machine, of a later one, which is longer.
      const seconds = Number(changed.headers.get("retry-after"));
      expect(seconds).toBeGreaterThanOrEqual(1);
      expect(seconds).toBeLessThanOrEqual(40);
    }
  });

  test("is not started with an invalid input", async () => {
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

  test("that needs longer than the request's timeout is parked, and the next request resumes it", async () => {
    const key = newKey();
    const gate = Promise.withResolvers<void>();
    gates.set(key, gate);
    const startWithin = async (timeout: number): Promise<Awaited<ReturnType<typeof start>>> => {
      const answer = await start((await serve({ timeout })).ask, "gate", key);
      // On a busy machine, the time may be over before the run begins.
      return answer.body.code === "NO_TIME" ? startWithin(2 * timeout) : answer;
    };
    const parked = await startWithin(500);
    expect(parked).toMatchObject({ status: 202, body: { reason: "deadline" } });
    expect(parked.headers.get("location")).toBe(`/runs/${key}`);
    expect(Number(parked.headers.get("retry-after"))).toBeGreaterThan(0);
    gate.resolve();
    expect((await start((await serve()).ask, "gate", key)).status).toBe(200);
    expect(effects.get(key)).toBe(1);
  });

  test("with an id that no path can carry is found at its Location", async () => {
    const { ask } = await serve({ basePath: "/v1" });
    for (const key of ["a/b", "..", "-", "100% sure?"]) {
      const id = key + randomUUID().slice(0, key === ".." || key === "-" ? 0 : 8);
      const begun = await ask("POST", `/v1${startPath}`, { key: id, body: { does: "work" } });
      const run = await ask("GET", begun.headers.get("location") ?? "");
      expect(run).toMatchObject({ status: 200, body: { runId: id } });
    }
  });
});

test("a closing server answers its active requests, and accepts no more", async () => {
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
  // The step is done; another process executes the next ones.
  expect([200, 202]).toContain((await first).status);
  await closed;
  const after = await serve();
  expect((await after.ask("POST", startPath, { key, body: { does: "gate" } })).status).toBe(200);
  expect(effects.get(key)).toBe(1);
});

testSecrecy(50);
