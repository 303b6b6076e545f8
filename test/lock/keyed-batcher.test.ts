import { expect, test } from "vitest";
import { KeyedBatcher } from "../../core/lock/keyed-batcher.ts";

test("each caller of a group gets its own result, and all of a failed one get its error", async () => {
  const groups: (readonly number[])[] = [];
  const batcher = new KeyedBatcher<number, number>(2, async (group) => {
    groups.push(group);
    if (group.includes(4)) throw new Error("four");
    return group.map((number) => 10 * number);
  });
  const calls = [1, 2, 3, 4, 5].map((number) => batcher.add("a", number));
  const outcomes = await Promise.allSettled(calls);
  expect(groups).toEqual([[1], [2, 3], [4, 5]]);
  expect(outcomes.slice(0, 3).map((each) => each.status === "fulfilled" && each.value)).toEqual([
    10, 20, 30,
  ]);
  for (const call of calls.slice(3)) await expect(call).rejects.toThrow("four");
});
