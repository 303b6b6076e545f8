import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { TerminalError } from "../../core/steps/errors.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import type { SqlStore } from "../../core/stores/sql/store.ts";
import type { AppOptions } from "../../functions/http/options.ts";
import { StepLog } from "../../functions/http/step-log.ts";
import { open } from "../../infra/open.ts";
import { everythingSaid, READ_TOKEN, serving, TOKEN } from "./http.ts";
import { temporaryFile } from "./under-test.ts";

export const SECRET = "canary-secret-of-fences";

export let opened: SqlStore;

/** Opens the store of a test file before its tests, and closes it after them. */
export function openBeforeTests(): void {
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
}

/** The gates that runs of the workflow wait at, by run id. */
export const gates = new Map<string, PromiseWithResolvers<void>>();
export const effects = new Map<string, number>();

/** The executions of the workflow whose steps change each time. */
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
    "answer",
    "lock",
    "gate",
    "break",
    "change",
  ]),
  code: z.string().default("SOLD_OUT"),
  items: z.array(z.string()).default([]),
});

/** Another workflow with the same input. */
export const twin = workflow({ name: "twin", version: 1, input: Input }, async () => "twin");

/** A workflow that names its runs. */
const order = workflow(
  { name: "order", version: 1, input: z.object({ orderId: z.string() }), id: (o) => o.orderId },
  async (_, { orderId }) => orderId,
);

export const flow = workflow(
  { name: "flow", version: 1, input: Input, signals: { paid: z.object({ amount: z.number() }) } },
  async (ctx, { does, code }) => {
    await ctx.step(
      "effect",
      async () => void effects.set(ctx.runId, (effects.get(ctx.runId) ?? 0) + 1),
      async () => void effects.delete(ctx.runId),
    );
    if (does === "fail")
      throw new TerminalError(code, "there are none left", { data: { left: 0 }, effect: "none" });
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
    if (does === "wait") return ctx.waitFor("paid");
    if (does === "answer") {
      await ctx.publish("total", 5);
      return ctx.answer("paid", async ({ amount }) => {
        if (amount < 0) throw new TerminalError("NEGATIVE", "no less than 0");
        return { total: 5 + amount };
      });
    }
    if (does === "gate") {
      await ctx.step("gate", () => gates.get(ctx.runId)?.promise ?? Promise.resolve());
    }
    if (does === "lock") {
      const lock = { names: `busy/${ctx.runId}`, onBusy: "suspend" } as const;
      return ctx.step("locked", { lock }, async ({ fence }) => fence.token);
    }
    return { done: does, at: new Date(0), many: 2n ** 60n };
  },
);

export function appOptions(more: AppOptions = {}): AppOptions {
  const { locks, inventory, journal } = opened;
  const stepLog = new StepLog();
  const workflows = [flow, twin, order];
  const runtime = createRuntime({ journal, locks, workflows, onEvent: stepLog.onEvent });
  return { ...{ runtime, workflows, inventory, locks, stepLog, secret: SECRET }, ...more };
}

export const serve = (more?: AppOptions) => serving(appOptions(more));

export const startPath = "/workflows/flow/runs";
export const newKey = () => `key-${randomUUID()}`;

/** Starts a run of the workflow. */
export const start = (
  ask: Awaited<ReturnType<typeof serve>>["ask"],
  does: string,
  key = newKey(),
) => ask("POST", startPath, { key, body: { does } });

/** Less than the 10 s of an unlimited call to a silent store. */
export const BEFORE_LONGEST_CALL = 9_000;

/** Creates a sku with `quantity` units on hand. */
export async function newSku(quantity = 10): Promise<string> {
  const sku = `sku-${randomUUID()}`;
  await opened.inventory.set({ sku, quantity, operationId: newKey() });
  return sku;
}

/** Tests that no response and no log line of the file's servers holds a secret or a stack. Call it last. */
export function testSecrecy(leastTexts: number): void {
  test("no response and no log line holds a secret or a stack", () => {
    expect(everythingSaid.length).toBeGreaterThan(leastTexts);
    const all = everythingSaid.join("\n");
    for (const canary of [TOKEN, READ_TOKEN, SECRET, "canary-password"]) {
      expect(all).not.toContain(canary);
    }
    expect(all).not.toMatch(/\\n {4}at |\.ts:\d+/);
  });
}
