import { describe, expect, test } from "vitest";
import { createRuntime } from "../../core/steps/runtime.ts";
import { READ_TOKEN } from "../support/http.ts";
import {
  effects,
  gates,
  newKey,
  openBeforeTests,
  opened,
  serve,
  start,
  startPath,
  testSecrecy,
} from "../support/http-app.ts";
import { pause, until } from "../support/until.ts";

openBeforeTests();

describe("a run", () => {
  test("receives a signal once per key, and resumes", async () => {
    const { ask } = await serve();
    const runId = newKey();
    const waiting = await start(ask, "wait", runId);
    expect(waiting).toMatchObject({ status: 202, body: { reason: "signal" } });
    expect(waiting.headers.get("location")).toBe(`/runs/${runId}`);
    expect(waiting.headers.get("retry-after")).toBe("60");
    const key = newKey();
    const send = (amount: number, more = {}) =>
      ask("POST", `/runs/${runId}/signals/paid`, { key, body: { amount }, ...more });
    const invalid = await ask("POST", `/runs/${runId}/signals/paid`, {
      key,
      body: { amount: "7" },
    });
    expect(invalid).toMatchObject({ status: 400, body: { code: "INVALID" } });
    expect(invalid.body.issues).toEqual([expect.stringContaining("amount: ")]);
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

  test("accepts a repeated signal, and refuses another payload under the same key", async () => {
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

  test("answers queries and updates, the same ones again with the same key", async () => {
    const { ask } = await serve();
    const runId = newKey();
    await start(ask, "answer", runId);
    const total = await ask("GET", `/runs/${runId}/published/total`);
    expect(total).toMatchObject({ status: 200, body: { value: 5 } });
    const none = await ask("GET", `/runs/${runId}/published/none`);
    expect(none).toMatchObject({ status: 200, body: { value: null } });
    expect((await ask("GET", "/runs/nix/published/total")).status).toBe(404);
    const key = newKey();
    const update = (amount: unknown, more = {}) =>
      ask("POST", `/runs/${runId}/updates/paid`, { key, body: { amount }, ...more });
    expect(await update("7")).toMatchObject({ status: 400, body: { code: "INVALID" } });
    for (const replayed of [null, "true"]) {
      const answer = await update(7);
      expect(answer).toMatchObject({ status: 200, body: { output: { total: 12 } } });
      expect(answer.headers.get("idempotent-replayed")).toBe(replayed);
    }
    expect(await update(8)).toMatchObject({ status: 422, body: { code: "SIGNAL_CONFLICT" } });
    const late = await update(7, { key: newKey() });
    expect(late).toMatchObject({ status: 409, body: { code: "RUN_ENDED" } });
    const other = newKey();
    await start(ask, "answer", other);
    const refused = await ask("POST", `/runs/${other}/updates/paid`, { key, body: { amount: -1 } });
    expect(refused).toMatchObject({ status: 422, body: { code: "NEGATIVE" } });
    const sleeping = newKey();
    await start(ask, "sleep", sleeping);
    const later = await ask("POST", `/runs/${sleeping}/updates/paid`, { key, body: { amount: 1 } });
    expect(later).toMatchObject({ status: 202, body: { runId: sleeping } });
  });

  test("refuses an update of another payload under the same key before the answer, too", async () => {
    const { ask } = await serve();
    const runId = newKey();
    await start(ask, "sleep", runId);
    const key = newKey();
    const update = (body: unknown) => ask("POST", `/runs/${runId}/updates/paid`, { key, body });
    expect((await update({ amount: 1, b: [2] })).status).toBe(202);
    expect((await update({ b: [2], amount: 1 })).status).toBe(202);
    const other = await update({ amount: 2 });
    expect(other).toMatchObject({ status: 422, body: { code: "SIGNAL_CONFLICT" } });
    const undeclared = await ask("POST", `/runs/${runId}/updates/news`, { key, body: {} });
    expect(undeclared).toMatchObject({ status: 400, body: { code: "INVALID" } });
  });

  test("answers a value that is too large for the journal with a 413", async () => {
    const { ask } = await serve({ bodyLimit: 2 ** 22 });
    const runId = newKey();
    await start(ask, "sleep", runId);
    const body = { amount: 1, text: "x".repeat(2 ** 20) };
    for (const kind of ["signals", "updates"]) {
      const sent = await ask("POST", `/runs/${runId}/${kind}/paid`, { key: newKey(), body });
      expect(sent).toMatchObject({ status: 413, body: { code: "TOO_LARGE" } });
    }
  });

  test("goes on after a retry, unless it has completed", async () => {
    const { ask } = await serve();
    const runId = newKey();
    await start(ask, "sleep", runId);
    await ask("POST", `/runs/${runId}/cancel`);
    expect(await ask("POST", `/runs/${runId}/retry-undo`)).toMatchObject({
      ...{ status: 409, body: { code: "NO_FAILED_UNDO" } },
    });
    expect(await ask("POST", `/runs/${runId}/retry`)).toMatchObject({
      ...{ status: 200, body: { status: "suspended", reason: "sleep" } },
    });
    expect(effects.get(runId)).toBe(1);
    const done = newKey();
    await start(ask, "work", done);
    expect(await ask("POST", `/runs/${done}/retry`)).toMatchObject({
      ...{ status: 409, body: { code: "RUN_COMPLETED" } },
    });
    expect((await ask("POST", `/runs/${newKey()}/retry`)).status).toBe(404);
  });

  test("is forked at a step, once per key", async () => {
    const { ask } = await serve();
    const [origin, key] = [newKey(), newKey()];
    await start(ask, "work", origin);
    const fork = (body: unknown, as = key) =>
      ask("POST", `/runs/${origin}/fork`, { key: as, body });
    for (const replayed of [null, "true"]) {
      const forked = await fork({ from: "effect" });
      expect(forked.headers.get("idempotent-replayed")).toBe(replayed);
      expect(forked).toMatchObject({ status: 200, body: { runId: key, status: "completed" } });
      expect(forked.headers.get("location")).toBe(`/runs/${key}`);
    }
    expect(effects.get(key)).toBe(1);
    const about = { origin: { runId: origin, step: "effect" }, forks: [] };
    expect((await ask("GET", `/runs/${key}`)).body).toMatchObject(about);
    expect((await ask("GET", `/runs/${origin}`)).body).toMatchObject({ forks: [key] });
    const refused = (code: string, status = 422) => ({ status, body: { code } });
    expect(await fork({ from: "none" }, newKey())).toMatchObject(refused("UNKNOWN_STEP"));
    expect(await fork({ from: "effect" }, origin)).toMatchObject(refused("FORK_CONFLICT"));
    for (const body of [{}, { from: "é".repeat(300) }, { from: "a\0" }, { from: "\ud800" }]) {
      expect(await fork(body, newKey())).toMatchObject(refused("INVALID", 400));
    }
    const path = `/runs/${newKey()}/fork`;
    const missing = await ask("POST", path, { key: newKey(), body: { from: "a" } });
    expect(missing).toMatchObject(refused("UNKNOWN_RUN", 404));
  });

  test("is cancelled and undone once", async () => {
    const { ask } = await serve();
    const runId = newKey();
    await start(ask, "sleep", runId);
    expect(effects.get(runId)).toBe(1);
    const cancelled = await ask("POST", `/runs/${runId}/cancel`);
    expect(cancelled).toMatchObject({
      status: 200,
      body: { status: "cancelled", compensated: "yes", error: { code: "RUN_CANCELLED" } },
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

  test("that is cancelled with a wait tells how it ended, whoever executes it", async () => {
    const { ask } = await serve();
    const headers = { prefer: "wait=20" };
    const key = newKey();
    const gate = Promise.withResolvers<void>();
    gates.set(key, gate);
    const executing = ask("POST", startPath, { key, body: { does: "gate" } });
    await until(() => effects.get(key));
    const cancelling = ask("POST", `/runs/${key}/cancel`, { headers });
    await until(async () => (await opened.journal.find(key))?.cancelled);
    gate.resolve();
    expect(await cancelling).toMatchObject({
      // The aborted step has no undo.
      ...{ status: 200, body: { runId: key, status: "cancelled", compensated: "unclear" } },
    });
    await executing;
    const done = newKey();
    await start(ask, "work", done);
    expect(await ask("POST", `/runs/${done}/cancel`, { headers })).toMatchObject({
      ...{ status: 200, body: { runId: done, status: "completed" } },
    });
  });
});

describe("the limits of a queue", () => {
  test("are read, replaced and removed, for all processes", async () => {
    const { ask } = await serve();
    const queue = newKey();
    const limits = {
      concurrency: 2,
      rate: { runs: 5, per: "1m" },
      ratePerKey: { runs: 1, per: 50 },
    };
    const shown = { ...limits, rate: { runs: 5, per: 60_000 } };
    const set = await ask("PUT", `/limits/${queue}`, { body: limits });
    expect(set).toMatchObject({ status: 200, body: { queues: { [queue]: shown } } });
    expect((await opened.journal.limits()).get(queue)).toMatchObject(shown);
    expect((await ask("GET", "/limits")).body).toEqual(set.body);
    const removed = await ask("PUT", `/limits/${queue}`, { body: {} });
    expect(removed.status).toBe(200);
    expect(removed.body).not.toHaveProperty(`queues.${queue}`);
    expect((await opened.journal.limits()).has(queue)).toBe(false);
  });

  test("that are not known to be set in time have an unknown outcome", async () => {
    const { journal } = opened;
    const setLimits: typeof journal.setLimits = async (...given) => {
      await pause(2_000);
      return journal.setLimits(...given);
    };
    const slow = Object.assign(Object.create(journal), { setLimits });
    const { ask } = await serve({ runtime: createRuntime({ journal: slow }), timeout: 200 });
    expect(await ask("PUT", `/limits/${newKey()}`, { body: {} })).toMatchObject({
      body: { code: "UNKNOWN_OUTCOME" },
    });
  });

  test.each([
    [{ concurrency: 0 }],
    [{ concurrency: 1_000_001 }],
    [{ most: 1 }],
    [{ rate: { runs: 1, per: "2d" } }],
    [{ rate: { runs: 1, per: "often" } }],
  ])("%j are refused, and change nothing", async (body) => {
    const { ask } = await serve();
    const queue = newKey();
    expect(await ask("PUT", `/limits/${queue}`, { body })).toMatchObject({
      status: 400,
      body: { code: "INVALID" },
    });
    expect((await opened.journal.limits()).has(queue)).toBe(false);
  });

  test("are not changed with a token for reading", async () => {
    const { ask } = await serve();
    const asking = { token: READ_TOKEN, body: { concurrency: 1 } };
    expect((await ask("PUT", "/limits/mail", asking)).status).toBe(403);
    expect((await ask("GET", "/limits", { token: READ_TOKEN })).status).toBe(200);
  });
});

testSecrecy(50);
