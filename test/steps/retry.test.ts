import { expect, test } from "vitest";
import { retryDelay } from "../../core/steps/retry.ts";

test("the pauses between attempts grow up to the longest one", () => {
  const policy = { base: 100, factor: 3, max: "1s", jitter: "none", attempts: 6 } as const;
  const pauses = [1, 2, 3, 4, 5, 6].map((attempt) => retryDelay(new Error("no"), attempt, policy));
  expect(pauses).toEqual([100, 300, 900, 1_000, 1_000, undefined]);
});
