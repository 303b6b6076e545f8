import { expect, test } from "vitest";
import { simulate } from "./run.ts";

test("two workers count every schedule, as one does", async () => {
  const range = { first: 1, schedules: 100 };
  const [one, two] = [
    await simulate({ ...range, workers: 1 }),
    await simulate({ ...range, workers: 2 }),
  ];
  expect(two).toEqual(one);
});
