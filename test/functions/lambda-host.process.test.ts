import { stat } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { bundledHandlers } from "../support/lambda-host/bundled.ts";
import { CLIENTS } from "../support/lambda-host/clients.ts";
import { EventSource } from "../support/lambda-host/event-source.ts";
import { LambdaFunction, type ScaledOptions } from "../support/lambda-host/function.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { cells } from "../support/matrix.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

let bundled: Awaited<ReturnType<typeof bundledHandlers>>;

beforeAll(async () => {
  bundled = await bundledHandlers();
});

afterAll(() => bundled[Symbol.asyncDispose]());

function lambda(client: string, handler: string, options: Partial<ScaledOptions> = {}) {
  const module = join(bundled.folder, "index.js");
  return new LambdaFunction({ module, handler, timeout: 10_000, ...CLIENTS[client], ...options });
}

describe.concurrent.each(cells(Object.keys(CLIENTS)))("the Lambda host with %s", (client) => {
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

  test("freezes the work in progress between two events", async () => {
    const { file, remove } = await temporaryFile();
    const written = async () => (await stat(file)).size;
    await using fn = lambda(client, "tick");
    await fn.invoke({ file });
    const before = await written();
    expect(before).toBeGreaterThan(0);
    await pause(200);
    expect(await written()).toBe(before);
    await fn.invoke({ file });
    expect(await written()).toBeGreaterThan(before);
    await remove();
  });

  test("reports the remaining time", async () => {
    await using fn = lambda(client, "count", { timeout: 60_000 });
    const { remaining } = ((await fn.invoke({})) as { result: { remaining: number } }).result;
    expect(remaining).toBeGreaterThan(30_000);
    expect(remaining).toBeLessThanOrEqual(60_000);
  });

  test("distinguishes errors, exits and timeouts, and replaces a lost environment", async () => {
    await using fn = lambda(client, "count", { timeout: 6_000 });
    const error = { errorType: "RangeError", errorMessage: "as asked for" };
    expect(await fn.invoke({ fail: true })).toMatchObject({ type: "error", error });
    expect(await fn.invoke({ exit: true })).toEqual({ type: "exit" });
    expect(await fn.invoke({})).toMatchObject({ type: "response", result: { events: 1 } });
    expect(await fn.invoke({ hang: true })).toEqual({ type: "timeout" });
    expect(await fn.invoke({})).toMatchObject({ type: "response", result: { events: 1 } });
  });

  test("a leaked lock handle is lost on thaw, before any work is done under it", async () => {
    const { file, remove } = await temporaryFile();
    await using fn = lambda(client, "leak", { env: { LOCKSTEP_STORE: `sqlite:${file}` } });
    expect(await fn.invoke({ span: 0 })).toMatchObject({ result: { before: null } });
    // The environment is frozen for a while; the work in progress continues with the next event.
    await pause(200);
    const lost = { assertHeld: "LOCK_LOST", fence: "LOCK_LOST", ensure: "LOCK_LOST" };
    const second = await fn.invoke({ span: 300 });
    expect(second).toMatchObject({ result: { before: { ...lost, signal: "LOCK_LOST" } } });
    const third = await fn.invoke({ span: 0 });
    expect(third).toMatchObject({ result: { before: { ...lost, signal: "LOCK_LOST" } } });
    await remove();
  });
});

test("an environment that cannot start is an error of its event, and the next event gets a new environment", async () => {
  await using fn = lambda("our runtime client", "nothing");
  const errorMessage = expect.stringContaining("has no nothing");
  const failed = { type: "error", error: { errorType: "TypeError", errorMessage } };
  for (let i = 0; i < 2; i += 1) expect(await fn.invoke({})).toMatchObject(failed);
  const command = [process.execPath, "-e", "0"] as const;
  await using ends = lambda("our runtime client", "nothing", { command });
  expect(await ends.invoke({})).toEqual({ type: "exit" });
});

describe("a queue and a function", () => {
  /** The bodies of messages that were delivered and not deleted. */
  const left = async (handler: string, bodies: readonly unknown[]) => {
    const queue = new Queue({ name: "q", visibility: 60 });
    for (const body of bodies) queue.send(body);
    await using fn = lambda("our runtime client", handler);
    let invoked = 0;
    const onInvoked = () => {
      invoked += 1;
    };
    const options = { queue, function: fn, batchSize: 1, onInvoked };
    await using _ = new EventSource(options);
    await until(() => invoked === bodies.length);
    await pause(20);
    return queue.messages.map(({ body }) => JSON.parse(body));
  };

  test("an answer of another form fails the whole batch", async () => {
    const done = [null, {}, { batchItemFailures: null }, { batchItemFailures: [] }];
    const wrong = [
      { batchItemFailures: "none" },
      { batchItemFailures: [null] },
      { batchItemFailures: [{}] },
      { batchItemFailures: [{ itemIdentifier: "" }] },
      { batchItemFailures: [{ itemIdentifier: "of another batch" }] },
    ];
    expect(await left("repeat", [...done, ...wrong])).toEqual(wrong);
  });

  test("a function that cannot start loses no message", async () => {
    expect(await left("nothing", [1, 2])).toEqual([1, 2]);
  });
});
