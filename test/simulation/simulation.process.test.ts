import { describe, expect, test } from "vitest";
import { mutated } from "../mutants/mutant.ts";
import { WHOLE_MATRIX } from "../support/matrix.ts";
import { FAULTS } from "./faults.ts";
import { MUTANTS } from "./mutants.ts";
import { hunt, replay, simulate } from "./run.ts";

const SCHEDULES = WHOLE_MATRIX ? 500 : 200;

test(`${SCHEDULES} schedules with every kind of fault break no guarantee`, async () => {
  const { totals, failure } = await simulate({ first: 1, schedules: SCHEDULES, workers: 1 });
  const report = failure && [`seed ${failure.seed}`, ...failure.shrunk.trace].join("\n");
  expect(failure?.shrunk.violations, report).toBeUndefined();
  expect(totals.schedules).toBe(SCHEDULES);
  expect(Object.keys(totals.faults).sort()).toEqual([...FAULTS].sort());
  // Otherwise the clients never met.
  expect(totals.overlaps).toBeGreaterThan(0);
  expect(totals.lateRefused).toBeGreaterThan(0);
});

test("a lock that is lost to a late request after the last fault is acquired again", async () => {
  expect(await replay(172_195_086)).toMatchObject({ violations: [] });
});

test("the seed alone determines a schedule", async () => {
  const [once, again] = [await replay(3), await replay(3)];
  expect(once.trace.length).toBeGreaterThan(5);
  expect(again).toEqual(once);
});

describe("mutants", () => {
  test("each one replaces a text that its file has once", () => {
    for (const mutant of MUTANTS) expect(mutated(mutant)).toContain(mutant.replace);
    expect(new Set(MUTANTS.map(({ name }) => name)).size).toBe(MUTANTS.length);
  });

  test.each([
    ["a release without the owner check", "release by the owner"],
    ["validity from the answer", "validity"],
    ["reservations that expire at any time", "stock"],
  ])("%s is caught", async (name, check) => {
    const mutants = MUTANTS.filter((mutant) => mutant.name === name);
    const [found] = await hunt(mutants, { first: 1, schedules: 500, workers: 1 });
    expect(found).toMatchObject({ mutant: name, caughtBy: check });
  });
});
