import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { MUTANTS } from "../simulation/mutants.ts";
import { pageAt } from "../support/docs.ts";
import { CATALOGUE } from "./catalogue/index.ts";
import { mutated, ROOT } from "./mutant.ts";
import { isEnough, mutantsPage, type Report } from "./page.ts";

const mutants = Object.values(CATALOGUE).flat();
const report: Report = JSON.parse(readFileSync(new URL("docs/mutants.json", ROOT), "utf8"));

test("the text of each mutant stands in its file exactly once, and is replaced", () => {
  for (const mutant of [...mutants, ...MUTANTS]) {
    expect(mutated(mutant), mutant.name).toContain(mutant.replace);
    expect(mutant.replace).not.toBe(mutant.find);
  }
});

test("each mutant has a name of its own, and tests that exist", () => {
  const names = mutants.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  for (const path of mutants.flatMap(({ tests }) => tests)) {
    expect(existsSync(new URL(path, ROOT)), path).toBe(true);
  }
});

test("the page of the mutants is made from the trials of all of them", () => {
  expect(report.trials.map(({ name }) => name)).toEqual(mutants.map(({ name }) => name));
  expect(pageAt("docs/mutants.md")).toBe(mutantsPage(report, mutants));
});

test("tests catch 97 % of the mutants at least, and each survivor has its reason", () => {
  expect(isEnough(report, mutants)).toBe(true);
  const [first, ...rest] = report.trials;
  const survived = { ...first, outcome: "survived", name: "no such mutant" } as const;
  expect(isEnough({ ...report, trials: [survived, ...rest] } as Report, mutants)).toBe(false);
});
