import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import * as z from "zod";
import { workflow } from "../../core/steps/index.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { incidentTelemetry } from "../../functions/telemetry/incidents.ts";
import { type AnyStore, open } from "../../infra/open.ts";
import { seriousFaults } from "../support/browser.ts";
import { act, servingConsole } from "../support/console.ts";
import { cells } from "../support/matrix.ts";
import { expectRejection } from "../support/rejection.ts";
import { runCli, runScript } from "../support/script.ts";
import { Order, order } from "./order.ts";
import { browserBeforeTests } from "./pages.ts";
import { newStore, STORES, urlOf } from "./stores.ts";

const openPage = browserBeforeTests();

test.for(cells(Object.keys(STORES)))(
  "on %s, stock is shown, a lock is released in the page, and the late write of its holder is refused, visibly",
  async (name, context) => {
    const store = await urlOf(context, STORES, name);
    const { url } = await servingConsole(context, store);
    const incidents = incidentTelemetry(() => holder.locks);
    const observers = { onEvent: incidents.lock, onStockEvent: incidents.stock };
    await using holder: AnyStore = await open(store, observers);
    const { inventory, locks } = holder;
    await inventory.set({ sku: "cup", quantity: 3, operationId: "set" });
    const lock = await locks.lock("sku/cup", { ttl: "10m", wait: "30s" });
    const { page, problems } = await openPage(context, `${url}/#/stock`);
    await page.getByRole("link", { name: "cup", exact: true }).click();
    await page.getByRole("link", { name: "sku/cup" }).click();
    await page.getByRole("button", { name: "Release…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox", { name: /^Type/ }).fill("sku/cup");
    await dialog.getByRole("button", { name: "Release" }).click();
    const done = dialog.getByRole("status");
    await done.waitFor();
    expect(await done.innerText()).toMatch(/^released; .* its late writes are refused at once$/);
    await dialog.getByRole("button", { name: "Close" }).click();
    await page.getByText("Nobody holds this lock.").waitFor();

    const late = { sku: "cup", quantity: 1, operationId: "too-late", fence: lock.fence };
    await expectRejection(inventory.decrement(late), { code: "FENCED_OUT" });
    await page.getByRole("link", { name: "Incidents" }).click();
    const refused = page.getByRole("row").filter({ hasText: "write refused" });
    await refused.waitFor();
    expect(await refused.innerText()).toContain("too-late");
    expect(await refused.innerText()).toMatch(/fence \d+\.\d+/);
    expect(await refused.innerText()).toContain(`:${process.pid}`);
    expect(await seriousFaults(page)).toEqual([]);
    expect(problems).toEqual([]);
    expect(await inventory.get("cup")).toMatchObject({ onHand: 3 });
    const release = { lock: "sku/cup", fence: String(lock.fence), confirm: "sku/cup" };
    expect(await act(url, "release", release)).toBe("FENCE_INVALID");
  },
);

test("a name is confirmed as it is shown, also with repeated spaces and control characters", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  for (const [name, shown] of [
    ["a  b", "a  b"],
    ["a\nb\u009bc", "a\\nb\\u009bc"],
  ] as const) {
    await store.locks.lock(name, { ttl: "10m", wait: 0, renew: false });
    const { page, problems } = await openPage(context, url);
    await page.getByRole("row").last().getByRole("link").click();
    await page.getByRole("button", { name: "Release…" }).click();
    const dialog = page.getByRole("dialog");
    expect(await dialog.locator("b").innerText()).toBe(shown);
    await dialog.getByRole("textbox", { name: /^Type/ }).fill(shown);
    await dialog.getByRole("button", { name: "Release" }).click();
    await dialog.getByText("released; ").waitFor();
    expect((await store.locks.inspect(name)).holder).toBeUndefined();
    expect(problems).toEqual([]);
  }
});

test("a double click on Fork, and a second one after a lost answer, start one run, also on a page without HTTPS", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  const { journal, locks } = store;
  const runtime = createRuntime({ journal, locks });
  await runtime.execute(order, { sku: "cup" }, { id: "order-1" });
  const insecure = "delete Crypto.prototype.randomUUID;";
  const { page, problems } = await openPage(context, `${url}/#/runs/order-1`, insecure);
  let requests = 0;
  await page.route("**/api/actions/fork", async (route) => {
    requests += 1;
    if (requests > 1) return route.continue();
    await route.fetch();
    // The answer is lost.
    await route.abort();
  });
  await page.getByRole("button", { name: "Fork…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("First step to execute").fill("charge");
  await dialog.getByRole("textbox", { name: /^Type/ }).fill("order-1");
  const fork = dialog.getByRole("button", { name: "Fork" });
  await fork.dblclick();
  await dialog.getByRole("alert").waitFor();
  expect(requests).toBe(1);
  await fork.click();
  await dialog.getByText("started as ").waitFor();
  expect(await journal.list({ limit: 9 })).toHaveLength(2);
  expect(problems.filter((problem) => !problem.includes("ERR_FAILED"))).toEqual([]);
});

/** Clicks on an action, fills its fields and types the name of what it changes; returns what was done. */
async function perform(
  page: Page,
  title: string,
  typed: string,
  fields: Readonly<Record<string, string>> = {},
): Promise<string> {
  await page.getByRole("button", { name: `${title}…` }).click();
  const dialog = page.getByRole("dialog");
  for (const [label, value] of Object.entries(fields)) await dialog.getByLabel(label).fill(value);
  await dialog.getByRole("textbox", { name: /^Type/ }).fill(typed);
  await dialog.getByRole("button", { name: title }).click();
  const done = await dialog.getByRole("status").innerText();
  await dialog.getByRole("button", { name: "Close" }).click();
  return done;
}

test("in the page, a run is signalled, retried and forked, and the limit of its queue is raised", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  const { journal, locks } = store;
  let isBroken = true;
  const signals = { approved: z.object({ by: z.string() }) };
  const definition = { name: "approval", version: 1, input: Order, signals };
  const approval = workflow(definition, async (ctx) => {
    const approved = await ctx.waitFor("approved");
    return ctx.step("charge", { retry: { attempts: 1 } }, async () => {
      if (isBroken) throw new Error("the card is refused");
      return `charged for ${approved.by}`;
    });
  });
  const runtime = createRuntime({ journal, locks });
  const execute = () => runtime.execute(approval, { sku: "cup" }, { id: "order-1" });
  expect((await execute()).status).toBe("suspended");

  const { page, problems } = await openPage(context, `${url}/#/runs/order-1`);
  const fields = { Signal: "approved", "Payload, as JSON": '{"by":"Ada"}' };
  expect(await perform(page, "Send signal", "order-1", fields)).toBe("delivered");
  const limits = { "Runs at a time": "7" };
  await perform(page, "Set limits of its queue", "default", limits);
  expect((await journal.limits()).get("default")).toMatchObject({ concurrency: 7 });

  expect((await execute()).status).toBe("failed");
  await page.getByText("failed", { exact: true }).first().waitFor();
  isBroken = false;
  await perform(page, "Retry", "order-1");
  expect(await execute()).toMatchObject({ output: "charged for Ada" });
  await page.getByRole("button", { name: "Retry…" }).waitFor({ state: "detached" });

  const fork = { "First step to execute": "charge", "Id of the new run": "order-1-again" };
  expect(await perform(page, "Fork", "order-1", fork)).toBe("started as order-1-again");
  await page.getByRole("link", { name: "order-1-again" }).click();
  await page.getByRole("link", { name: "order-1", exact: true }).waitFor();
  expect(await journal.find("order-1-again")).toMatchObject({ origin: { runId: "order-1" } });
  expect(problems).toEqual([]);
});

test("the page of lockstep dev freezes a holder: the next one comes, and the late write is refused; then it kills one", async (context) => {
  const store = await newStore(context);
  await using shop: AnyStore = await open(store);
  const { inventory, locks } = shop;
  await inventory.set({ sku: "cup", quantity: 3, operationId: "set" });
  using dev = runCli("dev", "--store", store, "--port", "0");
  const { console: link } = JSON.parse(await dev.line());
  using holder = runScript("sell-when-lost", store, "cup");
  await holder.line();
  const { page, problems } = await openPage(context, link);
  await page.getByRole("link", { name: "sku/cup" }).click();
  const process = page.getByRole("definition");
  await process.filter({ hasText: new RegExp(`^${holder.child.pid}$`) }).waitFor();
  const done = await perform(page, "Freeze holder 5 s", "sku/cup");
  expect(done).toBe(`process ${holder.child.pid} is frozen for 5 s`);

  const next = await locks.lock("sku/cup", { ttl: "10m", wait: "2m" });
  await process.filter({ hasText: new RegExp(`^${globalThis.process.pid}$`) }).waitFor();
  const sale = { sku: "cup", quantity: 1, operationId: "in-time", fence: next.fence };
  expect(await inventory.decrement(sale)).toMatchObject({ outcome: "applied" });
  expect(await holder.line()).toBe("FENCED_OUT");
  await page.getByRole("link", { name: "Stock" }).click();
  await page.getByRole("link", { name: "cup", exact: true }).click();
  await page.getByRole("cell", { name: "in-time" }).waitFor();
  expect(await page.getByRole("cell", { name: "late" }).count()).toBe(0);
  await page.getByRole("link", { name: "Incidents" }).click();
  const incidents = page.getByRole("row").filter({ hasText: `:${holder.child.pid}` });
  await incidents.filter({ hasText: "write refused" }).filter({ hasText: "late" }).waitFor();
  await incidents.filter({ hasText: "lock lost" }).filter({ hasText: "sku/cup" }).waitFor();
  await next.unlock();

  using other = runScript("hold", store, "job", "600000");
  await other.line();
  await page.getByRole("link", { name: "Locks" }).click();
  await page.getByRole("link", { name: "job" }).click();
  expect(await perform(page, "Kill holder", "job")).toContain(
    `process ${other.child.pid} is killed`,
  );
  expect(await other.ended).toBe("SIGKILL");
  expect(problems).toEqual([]);
});
