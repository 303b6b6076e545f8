import type { SQSRecord } from "aws-lambda";
import { afterAll, beforeEach, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { StoreRefusedError } from "../../core/lock/errors.ts";
import { createRuntime, TerminalError, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { createApp } from "../../functions/http/app.ts";
import {
  queueHandler,
  scheduleHandler,
  stockHandler,
  sweepHandler,
} from "../../functions/lambda/index.ts";
import { logTelemetry } from "../../functions/telemetry/index.ts";
import { eventOf, Order, orders, within } from "../support/queue-handlers.ts";
import { pause } from "../support/until.ts";

const stderr = vi.spyOn(console, "error");

beforeEach(() => void stderr.mockReset().mockReturnValue());
afterAll(() => stderr.mockRestore());

/** The lines that were written since the test began. */
const lines = () => stderr.mock.calls.map(([line]) => JSON.parse(line));

/** The error as a line has it: of this file, and with its stack. */
const thrown = (message: string) => ({
  message: expect.stringContaining(message),
  stack: expect.stringMatching(/^ +at .*failures\.test\.ts:\d+/),
});

/** A workflow whose only step is `work`. */
function shop(work: (orderId: string) => Promise<unknown>) {
  const journal = memoryJournal();
  const once = { retry: { attempts: 1 } };
  const sell = workflow({ name: "sell", version: 1, input: Order }, (ctx, { orderId }) =>
    ctx.step("charge", once, () => work(orderId)),
  );
  const runtime = createRuntime({ journal, locks: memoryLocks(), workflows: [sell] });
  return { journal, sell, runtime };
}

const bug = async () => {
  throw new TypeError("my bug");
};

const soldOut = async () => {
  throw new TerminalError("SOLD_OUT");
};

describe("a queue without a listener", () => {
  test("writes why its stores cannot be opened, with the stack and no credentials", async () => {
    const { sell } = shop(async () => {});
    const open = async () => {
      throw new TypeError("cannot open mysql://root:hunter2@db/shop");
    };
    for (const handler of [queueHandler(open, sell), stockHandler(open)]) {
      stderr.mockClear();
      const event = eventOf([{ orderId: "1", sku: "a" }]);
      await handler(event, within());
      const record = event.Records[0]?.messageId;
      expect(lines()).toMatchObject([
        { level: "warn", event: "message", type: "retry", reason: "error", record },
      ]);
      expect(lines()[0].error).toMatchObject(thrown("cannot open mysql://db/shop"));
    }
  });

  test("writes the cause of a dead letter, the failure of a hook, and nothing of a message's body", async () => {
    const { sell, runtime } = shop(bug);
    const to = async () => {
      throw new TypeError("no dead letters");
    };
    const event = eventOf([{ orderId: "a-secret" }]);
    await queueHandler(runtime, sell, { poison: { to } })(event, within());
    const [poison, hook] = lines();
    expect(poison).toMatchObject({
      type: "poison",
      error: { message: expect.stringContaining("my bug"), step: "charge" },
    });
    expect(hook).toMatchObject({ type: "hook-failed", error: thrown("no dead letters") });
    const [record] = event.Records as [SQSRecord];
    await queueHandler(runtime, sell)({ Records: [{ ...record, body: "a-secret" }] }, within());
    expect(lines().at(-1)).toMatchObject({ type: "poison", error: { code: "INVALID_MESSAGE" } });
    expect(JSON.stringify(lines())).not.toContain("a-secret");
  });

  test("writes the name and message of an error whose other properties cannot be written", async () => {
    const { sell } = shop(bug);
    const circular: Record<string, unknown> = {};
    circular.self = circular;
    const throwing = () => {
      throw new Error("no JSON");
    };
    for (const more of [{ code: circular }, { code: Object.create(null) }, { toJSON: throwing }]) {
      stderr.mockClear();
      const open = async () => {
        throw Object.assign(new TypeError("cannot open mysql://root:hunter2@db/shop"), more);
      };
      const event = eventOf(orders("1"));
      await queueHandler(open, sell)(event, within());
      const record = event.Records[0]?.messageId;
      const error = { name: "TypeError", message: "cannot open mysql://db/shop" };
      expect(lines()).toMatchObject([{ type: "retry", reason: "error", record, error }]);
    }
  });

  test("writes that work has outlived the invocation", async () => {
    const { sell, runtime } = shop(() => new Promise(() => {}));
    const execute = () => new Promise<never>(() => {});
    const hanging = { ...runtime, journal: runtime.journal, workflows: [], execute };
    const event = eventOf(orders("1"));
    await queueHandler(() => hanging as never, sell, { reserve: 500 })(event, within(1_700));
    expect(lines()).toMatchObject([{ type: "retry", reason: "error" }]);
    expect(lines()[0].error.message).toContain("not done when the invocation was over");
  });

  test("writes nothing for a run that waits, and with a listener nothing at all", async () => {
    const { runtime } = shop(bug);
    const waits = workflow({ name: "waits", version: 1, input: Order }, (ctx) =>
      ctx.waitFor("paid", z.object({})),
    );
    const event = eventOf(orders("1"));
    const { batchItemFailures } = await queueHandler(runtime, waits)(event, within());
    expect(batchItemFailures).toHaveLength(1);
    const told = vi.fn();
    await queueHandler(bug, waits, { onEvent: told })(event, within());
    expect(told).toHaveBeenCalledOnce();
    expect(lines()).toEqual([]);
  });
});

test("a blocked run that a queue leaves is written by the sweep that tries it again", async () => {
  const { journal } = shop(bug);
  const misusing = workflow({ name: "misusing", version: 1, input: Order }, async (ctx) => {
    void ctx.step("not awaited", async () => {});
  });
  const runtime = createRuntime({ journal, workflows: [misusing] });
  const event = eventOf(orders("1"));
  const runId = event.Records[0]?.messageId as string;
  const { batchItemFailures } = await queueHandler(runtime, misusing, { parked: "leave" })(
    event,
    within(),
  );
  expect(batchItemFailures).toEqual([]);
  expect(lines()).toEqual([]);
  await runtime.retry(runId);
  await sweepHandler(runtime)({}, within());
  expect(lines()).toMatchObject([
    { event: "run", runId, status: "blocked", error: { code: "MISUSE" } },
  ]);
});

describe("a schedule without a listener", () => {
  const event = { time: "2026-01-02T03:00:00Z" };
  const input = () => ({ orderId: "1" });

  test("writes the error of a run that has failed, and no answer of its workflow", async () => {
    for (const work of [bug, soldOut]) {
      const { sell, runtime } = shop(work);
      const outcome = await scheduleHandler(runtime, sell, { input })(event, within());
      expect(outcome.status).toBe("failed");
    }
    expect(lines()).toMatchObject([
      { level: "warn", event: "run", runId: "sell:2026-01-02T03:00:00.000Z", status: "failed" },
    ]);
    expect(lines()[0].error).toMatchObject({
      message: 'step "charge" failed: my bug',
      step: "charge",
    });
  });

  test("writes the error of a run that the engine or a store has ended", async () => {
    const late = workflow({ name: "late", version: 1, input: Order, timeout: 5 }, async (ctx) => {
      await ctx.step("slow", () => pause(20));
      await ctx.step("too late", async () => {});
    });
    const { runtime } = shop(bug);
    await scheduleHandler(runtime, late, { input })(event, within());
    const tooLarge = shop(async () => "x".repeat(2 ** 21));
    await scheduleHandler(tooLarge.runtime, tooLarge.sell, { input })(event, within());
    const refused = shop(async () => {
      throw new StoreRefusedError("mysql", "access denied");
    });
    await scheduleHandler(refused.runtime, refused.sell, { input })(event, within());
    const codes = lines().map(({ error }) => error.code);
    expect(codes).toEqual(["RUN_TIMEOUT", "TOO_LARGE", "STORE_REFUSED"]);
  });

  test("and a sweep write nothing when they have listeners", async () => {
    const { sell, runtime } = shop(bug);
    const onOutcome = vi.fn();
    await scheduleHandler(runtime, sell, { input, onOutcome })(event, within());
    await runtime.start(sell, { orderId: "2" });
    await sweepHandler(runtime, { onOutcome })({}, within());
    expect(onOutcome).toHaveBeenCalledTimes(2);
    expect(lines()).toEqual([]);
  });

  test("and a sweep write what could not be resumed, with its stack", async () => {
    const { sell, runtime } = shop(bug);
    const { runId } = await runtime.start(sell, { orderId: "1" });
    await sweepHandler(runtime)({}, within());
    const claimDue = vi
      .spyOn(runtime, "claimDue")
      .mockResolvedValueOnce([{ runId: "other", part: 1, execute: bug }]);
    await sweepHandler(runtime, { concurrency: 1 })({}, within());
    claimDue.mockRestore();
    expect(lines()).toMatchObject([
      { event: "run", runId, status: "failed" },
      { event: "refused", runId: "other", error: thrown("my bug") },
    ]);
  });
});

describe("an app without a listener", () => {
  const appOf = (work: () => Promise<unknown>, more = {}) => {
    const { sell, runtime } = shop(work);
    return createApp({ runtime, workflows: [sell], authorize: () => ({}), ...more });
  };
  const start = (app: ReturnType<typeof createApp>) =>
    app.fetch(
      new Request("http://shop/workflows/sell/runs", {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": "1" },
        body: '{"orderId":"1"}',
      }),
    );

  test("writes an unexpected error with its stack, under the id of the request that is answered", async () => {
    const response = await start(appOf(async () => {}, { authorize: bug }));
    expect(response.status).toBe(500);
    const text = await response.text();
    expect(text).not.toContain("my bug");
    const { requestId } = JSON.parse(text);
    expect(lines()).toMatchObject([
      { level: "warn", event: "error", requestId, operation: "startRun", error: thrown("my bug") },
    ]);
  });

  test("writes the error of a run that has failed, and no answer of its workflow", async () => {
    const response = await start(appOf(bug));
    expect(response.status).toBe(500);
    expect(await response.text()).not.toContain("my bug");
    expect((await start(appOf(soldOut))).status).toBe(409);
    expect(lines()).toMatchObject([
      { event: "run", runId: "1", error: { message: 'step "charge" failed: my bug' } },
    ]);
  });

  test("writes a failed run once, however often its request is repeated", async () => {
    const app = appOf(bug);
    for (let i = 0; i < 3; i += 1) expect((await start(app)).status).toBe(500);
    expect(lines()).toHaveLength(1);
  });

  test("writes why a run was not resumed after its signal, which the response does not tell", async () => {
    const { runtime } = shop(soldOut);
    const sent = vi.spyOn(runtime, "signal").mockResolvedValue("delivered");
    const resumed = vi.spyOn(runtime, "resume").mockImplementation(bug);
    const app = createApp({ runtime, authorize: () => ({}) });
    const headers = { "idempotency-key": "1" };
    const url = "http://shop/runs/1/signals/paid";
    const response = await app.fetch(new Request(url, { method: "POST", headers }));
    expect(response.status).toBe(202);
    expect(lines()).toMatchObject([{ operation: "signalRun", error: thrown("my bug") }]);
    expect([sent, resumed].map(({ mock }) => mock.calls.length)).toEqual([1, 1]);
  });

  test("gives the same answer when stderr cannot be written", async () => {
    stderr.mockImplementation(() => {
      throw new Error("EPIPE");
    });
    expect(await (await start(appOf(bug))).json()).toMatchObject({
      code: "STEP_FAILED",
      runId: "1",
    });
  });

  test("tells its listener each failed run once, and writes nothing then", async () => {
    const onError = vi.fn();
    const app = appOf(bug, { onError });
    for (let i = 0; i < 3; i += 1) expect((await start(app)).status).toBe(500);
    const message = 'step "charge" failed: my bug';
    const failed = { message, code: "STEP_FAILED", step: "charge", stack: undefined };
    const at = { requestId: expect.any(String), operation: "startRun", runId: "1" };
    expect(onError.mock.calls).toEqual([[expect.objectContaining(failed), at]]);
    expect(onError.mock.calls[0]?.[0]).toBeInstanceOf(Error);
    await start(appOf(soldOut, { onError }));
    expect(onError).toHaveBeenCalledTimes(1);
    await start(appOf(bug, { onError, authorize: bug }));
    expect(onError).toHaveBeenCalledTimes(2);
    expect(lines()).toEqual([]);
  });
});

test("the telemetry of logs without a log writes the errors of steps, with their stacks", async () => {
  const sell = workflow({ name: "sell", version: 1, input: Order }, (ctx) =>
    ctx.step("charge", { retry: { attempts: 1 } }, bug),
  );
  const runtime = createRuntime({ journal: memoryJournal(), ...logTelemetry().runtime });
  await runtime.execute(sell, { orderId: "1" }, { id: "1" });
  expect(lines()).toMatchObject([
    { level: "warn", event: "run error", run: "1", step: "charge", error: thrown("my bug") },
  ]);
});
