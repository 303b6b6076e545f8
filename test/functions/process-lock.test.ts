import { setTimeout } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { openShop } from "../../functions/oversell/open-shop.ts";
import { type InjectFault, OrderHandler } from "../../functions/oversell/order-handler.ts";
import { STRATEGIES, type Strategy } from "../../functions/oversell/strategy.ts";
import { open } from "../../infra/open.ts";
import { temporaryFile } from "../support/under-test.ts";

/** A handler is a process: the mutex is in its memory. */
async function openProcesses() {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  const store: string = `sqlite:${file}`;
  const opened = await open(store);
  onTestFinished(() => opened.close());
  const shop = openShop(opened, "shop");
  await shop.open(6, "by-hand");
  const strategy = STRATEGIES.find(({ name }) => name === "process-lock") as Strategy;
  const times = { ttlMillis: 60_000, pauseMillis: 1, workMillis: 1, answersAt: [] };
  const config = { store, locks: undefined, shop: "shop", strategy, ...times };
  const start = (injectFault: InjectFault = async () => {}) =>
    new OrderHandler(opened, config, injectFault);
  return { shop, start };
}

const order = (orderId: string, fault?: "freeze") => ({ orderId, fault });

test("a lock in each process lets two processes sell the same unit", async () => {
  const { shop, start } = await openProcesses();
  const second = start();
  const first = start(async () => {
    expect(await second.handle(order("b"), 0)).toMatchObject({ answer: "sold" });
  });
  expect(await first.handle(order("a", "freeze"), 0)).toMatchObject({ answer: "sold" });
  expect(await shop.totals()).toMatchObject({ remaining: 5, sales: { length: 2 } });
});

test("a lock in a process makes the orders of that process wait", async () => {
  const { shop, start } = await openProcesses();
  let later: Promise<unknown> | undefined;
  const process = start(async () => {
    later = process.handle(order("b"), 0);
    await Promise.race([later, setTimeout(100)]);
  });
  expect(await process.handle(order("a", "freeze"), 0)).toMatchObject({ answer: "sold" });
  expect(await later).toMatchObject({ answer: "sold" });
  expect(await shop.totals()).toMatchObject({ remaining: 4, sales: { length: 2 } });
});
