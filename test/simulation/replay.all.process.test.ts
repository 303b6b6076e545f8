import { expect, test } from "vitest";
import { byName, replay } from "../models/replay.ts";
import { MUTANTS } from "./mutants.ts";
import { record } from "./run.ts";

test("the histories of 200 schedules are paths of the models", async () => {
  const histories = (await record({ first: 1, schedules: 200 })).flatMap(byName);
  expect(histories.length).toBeGreaterThan(400);
  expect((await replay(histories)).refusal).toBeUndefined();
});

test.each([
  ["a claim takes a held lock", 1, { operation: "hold", type: "ok" }],
  ["a release without the owner check", 1, { operation: "hold", type: "ok" }],
  ["tokens that are not counted", 1, { operation: "acquire", type: "ok" }],
  ["validity from the answer", 81, { operation: "hold", type: "ok" }],
  ["a fence that is not checked", 321, { operation: "write", type: "ok" }],
])("the model fence does not allow an event of the mutant: %s", async (name, first, event) => {
  const mutant = MUTANTS.find((one) => one.name === name);
  const histories = (await record({ first, schedules: 20 }, mutant)).flatMap(byName);
  expect((await replay(histories)).refusal?.event).toMatchObject(event);
});

test.each([
  ["stock", "an operation id for any change", { first: 60, schedules: 10 }, "sku/cup"],
  ["journal", "an end that overtakes a cancellation", { first: 1_140, schedules: 20 }, "run "],
])("the model %s does not allow an event of the mutant: %s", async (model, name, range, of) => {
  const mutant = MUTANTS.find((one) => one.name === name);
  const histories = (await record(range, mutant)).flatMap(byName);
  const some = histories.filter(([first]) => first?.name?.startsWith(of));
  expect((await replay(some)).refusal?.model).toBe(model);
});
