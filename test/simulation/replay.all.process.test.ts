import { expect, test } from "vitest";
import { byName, replay } from "../models/replay.ts";
import { MUTANTS } from "./mutants.ts";
import { planOf } from "./plan.ts";
import { record } from "./run.ts";

test("the histories of 200 schedules are paths of the models", async () => {
  const histories = (await record({ first: 1, schedules: 200 })).flatMap(byName);
  expect(histories.length).toBeGreaterThan(400);
  expect((await replay(histories)).refusal).toBeUndefined();
});

test("the owners of locks that a step of the store's clock may bring back are not recorded", async () => {
  const seeds = Array.from({ length: 100 }, (_, i) => 1 + i);
  const first = seeds.find((seed) => planOf(seed).storeJumps.length > 0) ?? 0;
  const [events = []] = await record({ first, schedules: 1 });
  expect(events.map(({ operation }) => operation)).toContain("acquire");
  expect(events.map(({ operation }) => operation)).not.toContain("owner");
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
  ["validity", "validity from the answer", { first: 81, schedules: 20 }],
  ["validity", "a claim takes a lock that is about to expire", { first: 41, schedules: 20 }],
  ["withdrawal", "a release without the owner check", { first: 1, schedules: 20 }],
  ["stock", "an operation id for any change", { first: 60, schedules: 10 }],
  ["journal", "an end that overtakes a cancellation", { first: 1_140, schedules: 20 }],
] as const)(
  "the model %s does not allow an event of the mutant: %s",
  async (model, name, range) => {
    const mutant = MUTANTS.find((one) => one.name === name);
    const histories = (await record(range, mutant)).flatMap(byName);
    expect((await replay(histories, [model])).refusal?.model).toBe(model);
  },
);
