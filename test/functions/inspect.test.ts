import { expect, test } from "vitest";
import type { LockInfo } from "../../core/lock/lock.ts";
import { drawLock } from "../../functions/cli/commands/inspect.ts";

const info: LockInfo = {
  ...{ name: "sku/1", holder: "web-1:47/a", about: undefined, expiresIn: 8_200, fence: "0.7" },
  waiters: 102,
};

test("a lock is drawn with its queue: each waiter, its work, and how long it has waited", () => {
  const queue = [
    { id: "web-2:11/b", since: new Date(Date.now() - 192_000), run: "order-7", step: "ship" },
    { id: "a\u001b[31mforeigner" },
  ];
  const lines = drawLock({ ...info, queue }).split("\n");
  const queueLines = lines.slice(lines.indexOf("the first 2 of 102 waiters:"));
  expect(queueLines.find((one) => one.includes("web-2"))).toMatch(
    /│ +1 │ web-2:11\/b +│ order-7 · ship +│ 3 m 1\d s +│/,
  );
  expect(queueLines.join("\n")).toMatch(/│ +2 │ a\\u001b\[31mforeigner │ +│ +│/);
  expect(drawLock({ ...info, waiters: 2, queue })).toContain("\nthe waiters:\n");
});

test("a lock without a queue is drawn alone", () => {
  expect(drawLock(info)).not.toContain("the waiters");
  expect(drawLock({ ...info, queue: [] })).not.toContain("the waiters");
});
