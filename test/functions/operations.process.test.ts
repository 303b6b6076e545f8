import { existsSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { stripVTControlCharacters } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { stockLock } from "../../core/inventory/inventory.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { openSqlite, type SqlStore } from "../../core/stores/sqlite/index.ts";
import { shortFence } from "../../functions/cli/terminal/draw-timeline.ts";
import type { ChromeTraceEvent } from "../../functions/telemetry/trace-events.ts";
import { cli, MAIN, programOnTerminal } from "../support/cli.ts";
import { temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

const LONG = 60_000;

let shop: SqlStore;
let url: string;
let remove: () => Promise<void>;

beforeAll(async () => {
  const temporary = await temporaryFile();
  url = `sqlite:${temporary.file}`;
  remove = temporary.remove;
  shop = await openSqlite(temporary.file, { label: "stuck" });
});

afterAll(async () => {
  await shop.close();
  await remove();
});

test("a shell completes commands, and top prints held locks once in a pipe", async () => {
  await using lock = await shop.locks.lock("nightly", { ttl: LONG, wait: 60_000 });
  const [script, words, top, traceOfNone, status] = await Promise.all([
    cli("completion"),
    cli("--get-yargs-completions", "lockstep", "do"),
    cli("top", "--store", url),
    cli("runs", "export", "nobody", "--trace", "--store", url),
    cli("migrate", "--status", "--store", url),
  ]);
  expect(script.stdout).toContain("--get-yargs-completions");
  expect(words.stdout).toMatch(/^doctor$/m);
  expect(top.stdout).toContain("nightly");
  expect(top.stdout).toContain(shortFence(String(lock.fence)));
  expect(top.stdout).toMatch(/ stuck /);
  expect(top.stdout).toContain("no open runs");
  expect(traceOfNone).toMatchObject({ status: 1 });
  expect(status).toMatchObject({
    status: 0,
    stdout: expect.stringContaining("applied  0001-locks"),
  });
});

test("on a terminal, top follows the locks within its columns, and ends on Ctrl-C", async () => {
  const name = `nightly/${"long/".repeat(30)}`;
  const lock = await shop.locks.lock(name, { ttl: LONG, wait: 0 });
  const command = `stty cols 70 rows 24; exec '${process.execPath}' '${MAIN}' top --store '${url}'`;
  const { shown, type, status } = programOnTerminal("sh", "-c", command);
  const screen = () => stripVTControlCharacters(shown().split("\x1b[2J").at(-1) ?? "");
  await until(() => screen().includes("nightly/long/"));
  for (const line of screen().split("\r\n")) expect(line.length).toBeLessThanOrEqual(70);
  await lock.unlock();
  await until(() => screen().includes("no locks") && !screen().includes("nightly/"));
  type("\x03");
  expect(await status).toBe(0);
});

test("runs export --trace shows the steps of a run as spans of one trace", async () => {
  const runtime = createRuntime({ journal: shop.journal, locks: shop.locks });
  const order = workflow({ name: "order", version: 1, input: z.string() }, async (ctx, sku) => {
    await ctx.step("charge", async () => "paid with a card 4711");
    return ctx.step("ship", { lock: `sku/${sku}` }, async () => "shipped");
  });
  expect((await runtime.execute(order, "cup", { id: "order-1" })).status).toBe("completed");
  const { stdout, status } = await cli("runs", "export", "order-1", "--trace", "--store", url);
  expect(status).toBe(0);
  expect(stdout).not.toContain("4711");
  const { traceEvents } = JSON.parse(stdout) as { readonly traceEvents: ChromeTraceEvent[] };
  expect(traceEvents[0]).toMatchObject({ ph: "M", args: { name: "order order-1" } });
  const spans = traceEvents.filter(({ ph }) => ph === "X");
  const spanOf = (name: string) => spans.find((one) => one.name === name) as ChromeTraceEvent;
  const [charge, ship] = [spanOf("charge: ok"), spanOf("ship: ok")];
  expect(charge.tid).not.toBe(ship.tid);
  expect(charge.ts + (charge.dur ?? 0)).toBeLessThanOrEqual(ship.ts);
  expect(ship.args.fence).toMatch(/\d/);
  expect(Math.abs(charge.ts / 1_000 - Date.now())).toBeLessThan(600_000);
});

test("migrate --status and --print of a SQLite file tell what is missing, and change nothing", async () => {
  const { file, remove } = await temporaryFile();
  const store = `sqlite:${file}`;
  const call = (...words: readonly string[]) => cli("migrate", ...words, "--store", store);
  const missing = { status: 1, stdout: expect.stringContaining("pending  0001-locks") };
  expect(await call("--status")).toMatchObject(missing);
  expect((await call("--print")).stdout).toContain("CREATE TABLE IF NOT EXISTS lockstep_lock");
  expect(existsSync(file)).toBe(false);

  using old = new DatabaseSync(file);
  old.exec("CREATE TABLE lockstep_migration (version INTEGER NOT NULL PRIMARY KEY)");
  expect(await call("--status")).toMatchObject(missing);
  expect(old.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").all()).toHaveLength(1);
  expect((await call()).stdout).toMatch(/^applied 0001-locks\n/);
  expect(await call("--status")).toMatchObject({ status: 0 });
  await remove();
});

describe("lockstep release", () => {
  test("frees the lock of another process, says who held it, and the stock refuses the late write", async () => {
    const name = stockLock("teapot");
    await shop.inventory.set({ sku: "teapot", quantity: 5, operationId: "set" });
    const lock = await shop.locks.lock(name, { ttl: LONG, wait: 60_000 });
    const fence = String(lock.fence);
    const wrong = await cli("release", name, "--fence", fence.replace(/.$/, "x"), "--store", url);
    expect(wrong).toMatchObject({
      status: 64,
      stderr: expect.stringContaining("a fence is a text"),
    });
    const higher = `0000000009.${fence.split(".")[1]}`;
    const refused = await cli("release", name, "--fence", higher, "--store", url);
    expect(refused).toMatchObject({ status: 1, stderr: expect.stringContaining("held by stuck/") });
    const change = { sku: "teapot", quantity: 1, fence: lock.fence };
    await shop.inventory.decrement({ ...change, operationId: "in-time" });
    const released = await cli("release", name, "--fence", fence, "--store", url);
    expect(released.status).toBe(0);
    expect(JSON.parse(released.stdout)).toMatchObject({
      name,
      holder: expect.stringMatching(/^stuck\//),
      outcome: "released",
      fencedOut: true,
    });
    await expect(
      shop.inventory.decrement({ ...change, operationId: "late" }),
    ).rejects.toMatchObject({ code: "FENCED_OUT" });
    expect(await shop.inventory.get("teapot")).toMatchObject({ onHand: 4 });
    expect(await lock.unlock()).toBe("was-lost");
  });
});
