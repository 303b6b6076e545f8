import { setTimeout } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import type { Delivery, Fault, HandledOrder, Worker } from "../../functions/oversell/messages.ts";
import { runSale } from "../../functions/oversell/sale.ts";
import { STRATEGIES, type Strategy } from "../../functions/oversell/strategy.ts";
import type { TraceEvent } from "../../functions/oversell/trace.ts";
import { open } from "../../infra/open.ts";
import { temporaryFile } from "../support/under-test.ts";

const strategy = STRATEGIES.find(({ name }) => name === "lockstep") as Strategy;

function handled(
  answer: HandledOrder["answer"],
  ...types: readonly TraceEvent["type"][]
): HandledOrder {
  return { answer, trace: types.map((type, at) => ({ type, at })) };
}

/** Delivers one order with the fault until it is sold. Returns the fault of each delivery. */
async function deliver(fault: Fault, answers: readonly HandledOrder[]) {
  const { file, remove } = await temporaryFile();
  const url: string = `sqlite:${file}`;
  await using opened = await open(url);
  const seen: Delivery["fault"][] = [];
  const worker: Worker = {
    configure: async () => {},
    handle: async (delivery) => answers[seen.push(delivery.fault) - 1] ?? handled("sold"),
    stop() {},
  };
  const sale = {
    ...{ opened, lockedBy: opened, store: opened.url, locks: undefined, stock: 1 },
    ...{ ttlMillis: 200, pauseMillis: 0, workMillis: 0, answersAt: [], onProgress() {} },
    ...{ workers: [worker], deliveries: [{ orderId: "order-1", fault }] },
  };
  await runSale(sale, strategy);
  await opened.close();
  await remove();
  return seen;
}

test("a fault that has not happened comes with the order's next delivery, and happens once", async () => {
  const busy = handled("busy", "asks");
  const frozen = handled("refused", "asks", "holds", "calls", "identified", "freezes", "wakes");
  expect(await deliver("freeze", [busy, busy, frozen])).toEqual([
    "freeze",
    "freeze",
    "freeze",
    undefined,
  ]);
  const slow = handled("busy", "asks", "holds", "calls", "identified");
  expect(await deliver("slow", [busy, slow])).toEqual(["slow", "slow", undefined]);
  const killed = handled("killed", "asks", "dies");
  expect(await deliver("kill-before", [busy, killed])).toEqual([
    "kill-before",
    "kill-before",
    undefined,
  ]);
});

test("a process that starts slowly is frozen before the others have sold everything", async () => {
  const { file, remove } = await temporaryFile();
  const url: string = `sqlite:${file}`;
  await using opened = await open(url);
  const begun: string[] = [];
  const beforeFreeze: number[] = [];
  const worker = (): Worker => ({
    configure: async () => {},
    async handle({ orderId, fault }, _, onFreeze) {
      begun.push(orderId);
      if (fault !== "freeze") return handled("sold");
      await vi.waitUntil(() => begun.length >= 9);
      // Any number of turns: the other worker is idle.
      await setTimeout(100);
      beforeFreeze.push(begun.length);
      await onFreeze();
      return handled("sold", "freezes", "wakes");
    },
    stop() {},
  });
  const deliveries = Array.from({ length: 12 }, (_, i) => ({
    orderId: `order-${i + 1}`,
    fault: i === 0 ? ("freeze" as const) : undefined,
  }));
  const sale = {
    ...{ opened, lockedBy: opened, store: opened.url, locks: undefined, stock: 10 },
    ...{ ttlMillis: 200, pauseMillis: 0, workMillis: 0, answersAt: [], onProgress() {} },
    ...{ workers: [worker(), worker()], deliveries },
  };
  await runSale(sale, strategy);
  expect(beforeFreeze).toEqual([9]);
  expect(begun.length).toBe(12);
  await opened.close();
  await remove();
});
