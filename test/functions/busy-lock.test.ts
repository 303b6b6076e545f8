import { describe, expect, test } from "vitest";
import { createRuntime, type Runtime, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { createApp } from "../../functions/http/app.ts";
import {
  lockedHandler,
  queueHandler,
  scheduleHandler,
  sweepHandler,
} from "../../functions/lambda/index.ts";
import { eventOf, Order, within } from "../support/queue-handlers.ts";
import { until } from "../support/until.ts";

const sale = workflow(
  { name: "sale", version: 1, input: Order, id: ({ orderId }) => orderId },
  // A handler that waited for as long as the step says would not answer within the time of a test.
  (ctx) => ctx.step("sell", { lock: { names: "sku/a", wait: "10m" } }, async () => "sold"),
);

interface Patience {
  /** In milliseconds; undefined is the default. */
  readonly wait?: number;
}

/** The ways to a step that takes the lock "sku/a". Each resolves to "busy" or "done". */
const WAYS: Readonly<Record<string, (shop: Shop, patience: Patience) => Promise<"busy" | "done">>> =
  {
    async queue({ runtime }, { wait }) {
      const handler = queueHandler(runtime, sale, waiting(wait));
      const { batchItemFailures } = await handler(eventOf([{ orderId: "1" }]), within(600_000));
      return batchItemFailures.length === 0 ? "done" : "busy";
    },
    async schedule({ runtime }, { wait }) {
      const input = () => ({ orderId: "1" });
      const handler = scheduleHandler(runtime, sale, { input, ...waiting(wait) });
      const outcome = await handler({ time: "2026-01-01T00:00:00Z" }, within(600_000) as never);
      if (outcome.status !== "completed") expect(outcome).toMatchObject({ reason: "lock-busy" });
      return outcome.status === "completed" ? "done" : "busy";
    },
    async sweep({ runtime }, { wait }) {
      await runtime.start(sale, { orderId: "1" });
      const report = await sweepHandler(runtime, waiting(wait))({}, within(600_000) as never);
      expect(report).toMatchObject({ failed: 0, refused: 0 });
      return report.completed === 1 ? "done" : "busy";
    },
    async http({ runtime }, { wait }) {
      const authorize = () => ({});
      const app = createApp({
        runtime,
        workflows: [sale],
        authorize,
        timeout: "10m",
        ...waiting(wait),
      });
      const request = new Request("http://shop/workflows/sale/runs", {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": "1" },
        body: JSON.stringify({ orderId: "1" }),
      });
      const response = await app.fetch(request);
      if (response.status === 200) return "done";
      expect(response.status).toBe(423);
      expect(response.headers.get("retry-after")).toBe("1");
      expect(await response.json()).toMatchObject({ code: "LOCK_BUSY", reason: "lock-busy" });
      return "busy";
    },
    async withLock({ locks }, { wait }) {
      const options = { name: "sku/a", ...(wait !== undefined && { wait }) };
      const handler = lockedHandler(locks, options, async () => {});
      return handler({}, within(600_000)).then(
        () => "done",
        (error) => {
          expect(error).toMatchObject({ code: "LOCK_TIMEOUT" });
          return "busy";
        },
      );
    },
  };

interface Shop {
  readonly runtime: Runtime;
  readonly locks: ReturnType<typeof memoryLocks>;
}

const waiting = (lockWait: number | undefined) => (lockWait === undefined ? {} : { lockWait });

async function busyShop() {
  const locks = memoryLocks();
  const runtime = createRuntime({ journal: memoryJournal(), locks, workflows: [sale] });
  const held = await locks.lock("sku/a", { ttl: 60_000, wait: 0 });
  return { runtime, locks, held };
}

describe.concurrent.each(Object.keys(WAYS))("the handler for %s", (name) => {
  const enter = WAYS[name] as NonNullable<(typeof WAYS)[string]>;

  test("answers at once when a lock is busy, and the run goes on when the lock is free", async () => {
    const shop = await busyShop();
    expect(await enter(shop, {})).toBe("busy");
    await shop.held.unlock();
    // A parked run tries again after up to 0.75 s.
    await until(async () => (await enter(shop, {})) === "done");
  });

  test("waits when asked for", async () => {
    const shop = await busyShop();
    setTimeout(() => shop.held.unlock(), 50);
    expect(await enter(shop, { wait: 10_000 })).toBe("done");
  });
});
