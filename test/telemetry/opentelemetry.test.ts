import { context, metrics, propagation, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  AggregationTemporality,
  type DataPoint,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { sleep } from "../../core/lock/abort.ts";
import { createRuntime, type Runtime, TerminalError, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { queueHandler, stockHandler } from "../../functions/lambda/index.ts";
import { continueTraces, METRICS, openTelemetry } from "../../functions/telemetry/index.ts";
import type { MetricName } from "../../functions/telemetry/metrics.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { within } from "../support/queue-handlers.ts";
import { temporaryFile } from "../support/under-test.ts";

const telemetry = openTelemetry();

async function openShop() {
  const { file, remove } = await temporaryFile();
  const database = sqliteDatabase(file);
  await migrate(database);
  const locks = sqlLocks(database, { closeDatabase: true, onEvent: telemetry.lock });
  const stock = sqlInventory(database, { onEvent: telemetry.stock });
  await stock.set({ sku: "a", quantity: 10, operationId: "supply" });
  const journal = sqlJournal(database);
  const close = () => locks.close().then(remove);
  return { locks, stock, journal, close };
}

let shop: Awaited<ReturnType<typeof openShop>>;

beforeEach(async () => {
  shop = await openShop();
});

afterEach(() => shop.close());

const Order = z.object({ orderId: z.string(), quantity: z.number() });

function runtimeOf(options: Partial<Parameters<typeof createRuntime>[0]> = {}): Runtime {
  const { journal, locks } = shop;
  return createRuntime({ journal, locks, inlineWait: 0, ...options, ...telemetry.runtime });
}

/** Sells, as a shop does. */
const order = workflow(
  { name: "order", version: 1, input: Order, id: ({ orderId }) => orderId },
  (ctx, { quantity }) =>
    ctx.step.tx("sell", { lock: "sku/a" }, async ({ tx, fence, idempotencyKey }) => {
      return trace.getTracer("user").startActiveSpan("query", async (span) => {
        const change = { sku: "a", quantity, operationId: idempotencyKey, fence };
        const { outcome } = await shop.stock.within(tx).decrement(change);
        span.end();
        if (outcome === "sold-out") throw new TerminalError("SOLD_OUT", "none is left");
        return outcome;
      });
    }),
);

test("telemetry without an SDK has no effect", async () => {
  const drive = (quantity: number, orderId: string) =>
    runtimeOf().execute(order, { orderId, quantity });
  expect(await drive(1, "o-1")).toMatchObject({ status: "completed", output: "applied" });
  expect(await drive(99, "o-2")).toMatchObject({ error: { code: "SOLD_OUT" } });
  const app = continueTraces({ fetch: async (request: Request) => new Response(request.url) });
  expect(await app.fetch(new Request("http://a/b")).then((one) => one.text())).toBe("http://a/b");
});

/** From here on, also for the telemetry that was there before. */
describe("with an SDK", () => {
  const spans = new InMemorySpanExporter();
  const exporter = new InMemoryMetricExporter(AggregationTemporality.DELTA);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });

  beforeAll(() => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    propagation.setGlobalPropagator(new W3CTraceContextPropagator());
    const spanProcessors = [new SimpleSpanProcessor(spans)];
    trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors }));
    metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
  });

  beforeEach(async () => {
    await reader.forceFlush();
    exporter.reset();
    spans.reset();
  });

  afterAll(() => reader.shutdown());

  const named = (name: string): ReadableSpan => {
    const found = spans.getFinishedSpans().filter((span) => span.name === name);
    expect(found.map((span) => span.name)).toEqual([name]);
    return found[0] as ReadableSpan;
  };

  const parentOf = (name: string) => {
    const parent = named(name).parentSpanContext?.spanId;
    return spans.getFinishedSpans().find((span) => span.spanContext().spanId === parent)?.name;
  };

  /** All points of a metric since the test began. */
  const points = async (metric: MetricName) => {
    await reader.forceFlush();
    return exporter
      .getMetrics()
      .flatMap(({ scopeMetrics }) => scopeMetrics)
      .flatMap((scope) => scope.metrics)
      .filter(({ descriptor }) => descriptor.name === metric)
      .flatMap(({ dataPoints }): readonly DataPoint<unknown>[] => dataPoints)
      .map(({ attributes, value }) => ({ attributes, value: countOf(value) }));
  };

  const countOf = (value: unknown) =>
    typeof value === "number" ? value : (value as { readonly count: number }).count;

  describe("spans", () => {
    test("nest from the run to the step, its lock and its own code", async () => {
      await runtimeOf().execute(order, { orderId: "o-1", quantity: 1 });
      expect(parentOf("run order")).toBeUndefined();
      expect(parentOf("step sell")).toBe("run order");
      expect(parentOf("lock wait")).toBe("step sell");
      expect(parentOf("lock hold")).toBe("step sell");
      expect(parentOf("query")).toBe("step sell");
    });

    test("nest in parallel steps that wait for each other's lock", async () => {
      const both = workflow({ name: "both", version: 1, input: z.any() }, (ctx) => {
        const sell = (name: string) =>
          ctx.step(name, { lock: { names: "sku/a", wait: "5s" } }, async () => {
            await sleep(20);
            trace.getTracer("user").startSpan(`query ${name}`).end();
          });
        return Promise.all([sell("one"), sell("two")]);
      });
      await runtimeOf().execute(both, undefined, { id: "r" });
      for (const name of ["one", "two"]) {
        expect(parentOf(`step ${name}`)).toBe("run both");
        expect(parentOf(`query ${name}`)).toBe(`step ${name}`);
        const { spanId } = named(`step ${name}`).spanContext();
        const inside = spans
          .getFinishedSpans()
          .filter(({ parentSpanContext }) => parentSpanContext?.spanId === spanId);
        const names = inside.map((span) => span.name);
        expect(names.sort()).toEqual(["lock hold", "lock wait", `query ${name}`]);
      }
    });

    test("have the run, step, attempt, lock, fence and outcome as attributes", async () => {
      await runtimeOf().execute(order, { orderId: "o-1", quantity: 1 });
      const run = { "lockstep.run_id": "o-1", "lockstep.workflow": "order" };
      expect(named("run order").attributes).toMatchObject({
        ...run,
        "lockstep.outcome": "completed",
      });
      const { attributes } = named("step sell");
      expect(attributes).toMatchObject({
        ...run,
        "lockstep.step": "sell",
        "lockstep.attempt": 1,
        "lockstep.outcome": "ok",
      });
      const fence = attributes["lockstep.fence"];
      expect(fence).toMatch(/\d/);
      for (const [name, outcome] of [
        ["lock wait", "acquired"],
        ["lock hold", "released"],
      ] as const) {
        expect(named(name).attributes).toEqual({
          "lockstep.lock": "sku/a",
          "lockstep.fence": fence,
          "lockstep.outcome": outcome,
        });
      }
    });

    test("record the code and message of an error, and no input", async () => {
      const secret = "input-8c1f";
      const failing = workflow({ name: "failing", version: 1, input: z.any() }, (ctx, _: string) =>
        ctx.step("fail", { retry: false }, async () => {
          throw Object.assign(new Error("no, by mysql://root:hunter2@db/shop"), { code: "NO" });
        }),
      );
      await runtimeOf().execute(failing, secret, { id: "r" });
      for (const name of ["step fail", "run failing"]) {
        const { status, attributes, events } = named(name);
        expect(status.code).toBe(SpanStatusCode.ERROR);
        expect(attributes["lockstep.outcome"]).toBe("failed");
        expect(events[0]?.attributes).toEqual({
          "exception.type": name === "step fail" ? "NO" : expect.any(String),
          "exception.message": expect.stringContaining("no, by mysql://"),
        });
      }
      const all = spans.getFinishedSpans().map(({ attributes, events, status }) => {
        return JSON.stringify({ attributes, events, status });
      });
      expect(all.join()).not.toContain(secret);
      expect(all.join()).not.toContain("hunter2");
    });

    test("count a parked run as no error, and have one span per attempt", async () => {
      const trying = workflow({ name: "trying", version: 1, input: z.any() }, (ctx) =>
        ctx.step("try", { retry: { base: "1h" } }, async () => {
          throw new Error("later");
        }),
      );
      const locked = workflow({ name: "locked", version: 1, input: z.any() }, (ctx) =>
        ctx.step("wait", { lock: { names: "sku/a", onBusy: "suspend" } }, async () => {}),
      );
      await using _ = await shop.locks.lock("sku/a", { ttl: 10_000, wait: 0 });
      await runtimeOf().execute(trying, undefined, { id: "t" });
      await runtimeOf().execute(locked, undefined, { id: "l" });
      expect(named("step try").attributes["lockstep.outcome"]).toBe("failed");
      expect(named("step wait").attributes["lockstep.outcome"]).toBe("parked");
      for (const name of ["run trying", "run locked", "step wait"]) {
        expect(named(name).status.code).toBe(SpanStatusCode.UNSET);
      }
      expect(named("run trying").attributes["lockstep.outcome"]).toBe("suspended");
    });

    test("mention a lost lock in the span that acquired it", async () => {
      await trace.getTracer("user").startActiveSpan("outer", async (span) => {
        const lock = await shop.locks.lock("x", { ttl: 1_500, wait: 0, renew: false });
        await sleep(1_600);
        await lock.unlock();
        span.end();
      });
      expect(named("outer").events).toMatchObject([
        { name: "lock lost", attributes: { "lockstep.lock": "x", "lockstep.reason": "expired" } },
      ]);
      expect(named("lock hold").attributes["lockstep.outcome"]).toBe("was-lost");
    });

    test("continue the trace of a request, or the active span", async () => {
      const runtime = runtimeOf();
      const app = continueTraces({
        async fetch(_: Request) {
          return runtime.execute(order, { orderId: "o-1", quantity: 1 });
        },
      });
      const [traceId, spanId] = ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"];
      const headers = { traceparent: `00-${traceId}-${spanId}-01` };
      await app.fetch(new Request("http://a", { headers }));
      expect(named("run order").parentSpanContext).toMatchObject({ traceId, spanId });
      spans.reset();
      const again = continueTraces({
        fetch: async (_: Request) => trace.getTracer("user").startSpan("inner").end(),
      });
      await trace.getTracer("user").startActiveSpan("server", async (span) => {
        await again.fetch(new Request("http://a", { headers }));
        span.end();
      });
      expect(parentOf("inner")).toBe("server");
    });

    test("continue the trace of the message of a queue, inside of the span of the function", async () => {
      const queue = new Queue({ name: "orders", visibility: 60 });
      const [traceId, spanId] = ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"];
      const traceparent = `00-${traceId}-${spanId}-01`;
      queue.send({ orderId: "o-1", quantity: 1 }, { attributes: { traceparent } });
      const handler = queueHandler(runtimeOf(), order);
      const Records = [...queue.receive(1)];
      await trace.getTracer("user").startActiveSpan("function", async (span) => {
        expect(await handler({ Records }, within())).toEqual({ batchItemFailures: [] });
        span.end();
      });
      expect(named("run order").parentSpanContext).toMatchObject({ traceId, spanId });
    });

    test("continue the traces of orders: their sale that of the first one, each answer its own", async () => {
      const queue = new Queue({ name: "orders", visibility: 60 });
      const senders = [1, 2].map((n) => ({
        traceId: `${n}`.repeat(32),
        spanId: `${n}`.repeat(16),
      }));
      for (const { traceId, spanId } of senders) {
        const attributes = { traceparent: `00-${traceId}-${spanId}-01` };
        queue.send({ orderId: `o-${traceId}`, sku: "a" }, { attributes });
      }
      const { stock: inventory, locks } = shop;
      const handler = stockHandler(
        { inventory, locks },
        { onAnswer: async () => trace.getTracer("user").startSpan("answer").end() },
      );
      await handler({ Records: [...queue.receive(2)] }, within());
      expect(named("lock hold").parentSpanContext).toMatchObject(senders[0] ?? {});
      const answers = spans.getFinishedSpans().filter(({ name }) => name === "answer");
      expect(answers.map(({ parentSpanContext }) => parentSpanContext)).toMatchObject(senders);
    });
  });

  describe("metrics", () => {
    test("measure acquisition, contention and holding of locks", async () => {
      const lock = await shop.locks.lock("x", { ttl: 1_000, wait: 0 });
      expect(await shop.locks.tryLock("x", { ttl: 1_000 })).toBeUndefined();
      await lock.unlock();
      await shop.locks
        .lock("y", { ttl: 1_000, wait: 0, signal: AbortSignal.abort() })
        .catch(() => {});
      const acquiring = await points("lockstep.lock.acquire.duration");
      expect(acquiring).toEqual([
        { attributes: { "lockstep.outcome": "acquired" }, value: 1 },
        { attributes: { "lockstep.outcome": "busy" }, value: 1 },
      ]);
      expect(await points("lockstep.lock.contention")).toEqual([{ attributes: {}, value: 1 }]);
      expect(await points("lockstep.lock.hold.duration")).toEqual([
        { attributes: { "lockstep.outcome": "released" }, value: 1 },
      ]);
    });

    test("count a failing store", async () => {
      await using locks = memoryLocks({ maxWaiters: 0, onEvent: telemetry.lock });
      await using _ = await locks.lock("x", { ttl: 1_000, wait: 0 });
      await expect(locks.lock("x", { ttl: 1_000, wait: 100 })).rejects.toMatchObject({
        code: "TOO_MANY_WAITERS",
      });
      const acquiring = await points("lockstep.lock.acquire.duration");
      expect(acquiring).toContainEqual({ attributes: { "lockstep.outcome": "failed" }, value: 1 });
    });

    test("count a lost lock once, however its holder notices", async () => {
      const lost = (reason: string) => ({ attributes: { "lockstep.reason": reason }, value: 1 });
      const byTimer = await shop.locks.lock("x", { ttl: 1_500, wait: 0, renew: false });
      await sleep(1_600);
      await byTimer.unlock();
      expect(await points("lockstep.lock.lost")).toEqual([lost("expired")]);
      exporter.reset();
      const byFreeze = await shop.locks.lock("x", { ttl: 1_500, wait: 0, renew: false });
      blockFor(1_600);
      expect(await byFreeze.unlock()).toBe("was-lost");
      expect(await points("lockstep.lock.lost")).toEqual([lost("expired")]);
    });

    test("do not count a lock that is released with its store as lost", async () => {
      const locks = memoryLocks({ onEvent: telemetry.lock });
      await locks.lock("x", { ttl: 1_000, wait: 0 });
      await locks.close();
      expect(await points("lockstep.lock.hold.duration")).toHaveLength(1);
      expect(await points("lockstep.lock.lost")).toEqual([]);
    });

    test("count a refused write of a late holder once, also in a step", async () => {
      const late = await shop.locks.lock("sku/a", { ttl: 1_500, wait: 0, renew: false });
      await sleep(1_600);
      const selling = workflow({ name: "late", version: 1, input: z.any() }, (ctx) =>
        ctx.step.tx("sell", { lock: "sku/a", retry: false }, async ({ tx }) => {
          const { fence } = late;
          const change = { sku: "a", quantity: 1, operationId: "late", fence };
          await shop.stock.within(tx).decrement(change);
        }),
      );
      const outcome = await runtimeOf().execute(selling, undefined, { id: "r" });
      expect(outcome).toMatchObject({ status: "failed" });
      expect(await points("lockstep.fenced_out")).toEqual([
        { attributes: { "lockstep.guard": "fence" }, value: 1 },
      ]);
    });

    test("count a run that was taken over", async () => {
      const journal = memoryJournal();
      let isFirst = true;
      const stuck = workflow({ name: "stuck", version: 1, input: z.any() }, (ctx) =>
        ctx.step("stick", async () => {
          if (!isFirst) return;
          isFirst = false;
          blockFor(150);
          await createRuntime({ journal, workflows: [stuck] }).resume("r");
        }),
      );
      const outcome = await runtimeOf({ journal, lease: 100 }).execute(stuck, 1, { id: "r" });
      expect(outcome.status).toBe("busy");
      expect(await points("lockstep.fenced_out")).toEqual([
        { attributes: { "lockstep.guard": "epoch" }, value: 1 },
      ]);
    });

    test("count sold-out changes and replays of stock, runs and steps", async () => {
      const replays = (subject: string) => ({
        attributes: { "lockstep.subject": subject },
        value: 1,
      });
      const change = { sku: "a", quantity: 1, operationId: "once" };
      await shop.stock.decrement(change);
      await shop.stock.decrement(change);
      const orders = [{ operationId: "many", quantity: 11 }];
      await shop.stock.decrementMany({ sku: "a", orders });
      expect(await points("lockstep.replays")).toEqual([replays("stock")]);
      expect(await points("lockstep.stock.sold_out")).toEqual([{ attributes: {}, value: 1 }]);
      exporter.reset();

      const twoSteps = workflow({ name: "two", version: 1, input: z.any() }, async (ctx) => {
        await ctx.step("one", async () => {});
        await ctx.waitFor("go", z.unknown());
      });
      const runtime = runtimeOf();
      await runtime.execute(twoSteps, undefined, { id: "r" });
      await runtime.signal("r", "go", 1, { dedupeId: "1" });
      await runtime.resume("r");
      expect(await points("lockstep.replays")).toEqual([replays("step")]);
      exporter.reset();
      await runtime.execute(twoSteps, undefined, { id: "r" });
      expect(await points("lockstep.replays")).toEqual([replays("run")]);
    });

    test("count ended runs and measure attempts at steps, without step names", async () => {
      const mapping = workflow({ name: "mapping", version: 1, input: z.any() }, async (ctx) => {
        for (const sku of ["x", "y"]) await ctx.step(`sell ${sku}`, async () => {});
        const options = { keyOf: String, retry: false } as const;
        await ctx.step.map(
          "item",
          ["a", "b"],
          options,
          async () => 1,
          async () => {},
        );
        throw new TerminalError("NO");
      });
      await runtimeOf().execute(mapping, undefined, { id: "r" });
      const steps = (kind: string, value: number) => ({
        attributes: {
          "lockstep.workflow": "mapping",
          "lockstep.kind": kind,
          "lockstep.outcome": "ok",
        },
        value,
      });
      expect(await points("lockstep.step.duration")).toEqual([steps("step", 4), steps("undo", 2)]);
      expect(await points("lockstep.run.ended")).toEqual([
        {
          attributes: { "lockstep.workflow": "mapping", "lockstep.outcome": "failed" },
          value: 1,
        },
      ]);
    });

    test("have the units and descriptions of METRICS, and buckets in seconds", async () => {
      const lock = await shop.locks.lock("x", { ttl: 1_000, wait: 0 });
      await lock.unlock();
      await reader.forceFlush();
      const [held] = exporter
        .getMetrics()
        .flatMap(({ scopeMetrics }) => scopeMetrics)
        .flatMap((scope) => scope.metrics)
        .filter(({ descriptor }) => descriptor.name === "lockstep.lock.hold.duration");
      expect(held?.descriptor).toMatchObject({
        unit: "s",
        description: METRICS["lockstep.lock.hold.duration"].description,
      });
      expect(held?.dataPoints[0]?.value).toMatchObject({
        buckets: { boundaries: expect.arrayContaining([0.001, 0.25, 60]) },
      });
    });
  });
});

/** As if the process was frozen. */
function blockFor(span: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, span);
}
