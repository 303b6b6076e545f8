import { expect, onTestFinished, test } from "vitest";
import { Ledger, send } from "./ledger.ts";

async function newLedger(): Promise<Ledger> {
  const ledger = await Ledger.open();
  onTestFinished(() => ledger.close());
  return ledger;
}

const begin = { type: "begin", pid: 1, operation: "a" } as const;
const effect = { type: "effect", pid: 1, operation: "a", receipt: "1" } as const;

test("the ledger counts each effect, but not those of transactions", async () => {
  const ledger = await newLedger();
  await send(ledger.url, begin);
  expect(ledger.effectsOf("a")).toBe(0);
  await send(ledger.url, effect);
  await send(ledger.url, { ...effect, isTransacted: true });
  await send(ledger.url, { ...effect, receipt: "2" });
  expect(ledger.effectsOf("a")).toBe(2);
  expect(ledger.effectsOf("b")).toBe(0);
});

test("the ledger refuses an effect with a lower fence than the latest of its operation", async () => {
  const ledger = await newLedger();
  await send(ledger.url, { ...begin, fence: "1" });
  await send(ledger.url, { ...begin, fence: "2" });
  await expect(send(ledger.url, { ...effect, fence: "1" })).rejects.toThrow("refuses the fence 1");
  await send(ledger.url, { ...effect, fence: "2" });
  await send(ledger.url, { ...effect, operation: "b", fence: "1" });
  expect(ledger.effectsOf("a")).toBe(1);
});

test("a fault begins at the execution that comes after the spared ones, before it is answered", async () => {
  const ledger = await newLedger();
  const begun: number[] = [];
  const met = ledger.ambush.lay({
    at: "begin",
    work: 7,
    spare: 1,
    begin: (pid) => begun.push(pid),
  });
  expect(await send(ledger.url, begin)).toEqual({ work: 20 });
  expect(await send(ledger.url, { ...begin, pid: 2 })).toEqual({ work: 7 });
  expect(begun).toEqual([2]);
  expect(await met).toEqual({ pid: 2, what: "a" });
});
