import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { bundledHandlers } from "../support/lambda-host/bundled.ts";
import { CLIENTS } from "../support/lambda-host/clients.ts";
import { LambdaFunction, type ScaledOptions } from "../support/lambda-host/function.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause } from "../support/until.ts";

let bundled: Awaited<ReturnType<typeof bundledHandlers>>;

beforeAll(async () => {
  bundled = await bundledHandlers();
});

afterAll(() => bundled[Symbol.asyncDispose]());

function lambda(client: string, handler: string, options: Partial<ScaledOptions> = {}) {
  const module = join(bundled.folder, "index.js");
  return new LambdaFunction({ module, handler, timeout: 10_000, ...CLIENTS[client], ...options });
}

describe.concurrent.each(Object.keys(CLIENTS))("the Lambda host with %s", (client) => {
  test("keeps an environment for the next event, and starts another one beside it", async () => {
    await using fn = lambda(client, "count", { concurrency: 2 });
    const first = await fn.invoke({});
    const second = await fn.invoke({});
    expect(first).toMatchObject({ type: "response", result: { events: 1 } });
    const { pid } = (first as { result: { pid: number } }).result;
    expect(second).toMatchObject({ type: "response", result: { events: 2, pid } });
    const both = await Promise.all([fn.invoke({}), fn.invoke({}), fn.invoke({})]);
    expect(both.map(({ type }) => type).sort()).toEqual(["response", "response", "throttled"]);
  });

  test("tells errors, ends and timeouts apart, and replaces what is gone", async () => {
    await using fn = lambda(client, "count", { timeout: 2_000 });
    const error = { errorType: "RangeError", errorMessage: "as asked for" };
    expect(await fn.invoke({ fail: true })).toMatchObject({ type: "error", error });
    expect(await fn.invoke({ exit: true })).toEqual({ type: "exit" });
    expect(await fn.invoke({})).toMatchObject({ type: "response", result: { events: 1 } });
    expect(await fn.invoke({ hang: true })).toEqual({ type: "timeout" });
    expect(await fn.invoke({})).toMatchObject({ type: "response", result: { events: 1 } });
  });

  test("withLock: a handle that leaks is dead on thaw, before it does anything", async () => {
    const { file, remove } = await temporaryFile();
    await using fn = lambda(client, "leak", { env: { LOCKSTEP_STORE: `sqlite:${file}` } });
    expect(await fn.invoke({ span: 0 })).toMatchObject({ result: { before: null } });
    // It is frozen for a while, and what it had begun goes on with the next event.
    await pause(200);
    const lost = { assertHeld: "LOCK_LOST", fence: "LOCK_LOST", ensure: "LOCK_LOST" };
    const second = await fn.invoke({ span: 300 });
    expect(second).toMatchObject({ result: { before: { ...lost, signal: "LOCK_LOST" } } });
    const third = await fn.invoke({ span: 0 });
    expect(third).toMatchObject({ result: { before: { ...lost, signal: "LOCK_LOST" } } });
    await remove();
  });
});

test("a handler that is not there is named", async () => {
  await using fn = lambda("our runtime client", "nothing");
  await expect(fn.invoke({})).rejects.toThrow("has no nothing");
});
