import { expect, test } from "vitest";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { createApp } from "../../functions/http/app.ts";
import { queueHandler, scheduleHandler } from "../../functions/lambda/index.ts";
import { eventOf, Order, within } from "../support/queue-handlers.ts";

/** A shop whose orders come through a queue and over HTTP. */
function shop() {
  const sold: string[] = [];
  const sell = workflow(
    { name: "sell", version: 1, input: Order, id: ({ orderId }) => orderId },
    async (ctx, { orderId }) => ctx.step("sell", async () => void sold.push(orderId)),
  );
  const runtime = createRuntime({
    journal: memoryJournal(),
    locks: memoryLocks(),
    workflows: [sell],
  });
  const app = createApp({ runtime, workflows: [sell], authorize: () => ({ principal: "test" }) });
  const post = (key: string, orderId: string, query = "") =>
    app.fetch(
      new Request(`http://shop/workflows/sell/runs${query}`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": key },
        body: JSON.stringify({ orderId }),
      }),
    );
  return { sold, runtime, sell, post, handler: queueHandler(runtime, sell) };
}

test("an order that comes through the queue and over HTTP is sold once", async () => {
  const { sold, handler, post } = shop();
  await handler(eventOf([{ orderId: "7" }]), within());
  const other = await post("a-key-of-the-client", "7");
  expect(other.status).toBe(422);
  expect(await other.json()).toMatchObject({ code: "KEY_MISMATCH", runId: "7" });
  const same = await post("7", "7");
  expect(same.status).toBe(200);
  expect(same.headers.get("idempotent-replayed")).toBe("true");
  expect(sold).toEqual(["7"]);
});

test.each(["singleton=true", "debounce=1s"])(
  "an order is sold once, also by a request with %s",
  async (query) => {
    const { sold, runtime, post } = shop();
    await post("7", "7");
    const refused = await post("a-key-of-the-client", "7", `?${query}`);
    expect(refused.status).toBe(422);
    expect(await refused.json()).toMatchObject({
      code: "RUNS_HAVE_NAMES",
      detail: expect.stringContaining("send the run's id as the Idempotency-Key"),
    });
    expect(await runtime.journal.list()).toHaveLength(1);
    expect(sold).toEqual(["7"]);
  },
);

test("an order of a schedule is sold once, whatever else it comes through", async () => {
  const { sold, runtime, sell, post } = shop();
  const handler = scheduleHandler(runtime, sell, {
    every: "1d",
    input: (slot) => ({ orderId: `order of ${slot.getUTCDate()}` }),
  });
  const fire = (day: number) => handler({ time: `2026-01-0${day}T00:00:00Z` }, within());
  expect(await fire(1)).toMatchObject({ runId: "order of 1", status: "completed" });
  await fire(1);
  await post("order of 1", "order of 1");
  await fire(2);
  expect(sold).toEqual(["order of 1", "order of 2"]);
});

test("an input that is not valid is a 400 for a workflow that names its runs", async () => {
  const { post } = shop();
  const response = await post("7", 7 as unknown as string);
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ code: "INVALID" });
});

test("a queue takes no ids beside those of a workflow that names its runs", () => {
  const { runtime, sell } = shop();
  const id = () => "another";
  expect(() => queueHandler(runtime, sell, { id })).toThrow(TypeError);
  expect(() => queueHandler(runtime, sell, { id })).toThrow("leave out the option `id`");
});
